"""Studies: algorithms over a grid of settings, cut into chunks, run anywhere, kept in one store."""
