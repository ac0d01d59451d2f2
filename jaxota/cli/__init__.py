"""The command `jaxota`."""
