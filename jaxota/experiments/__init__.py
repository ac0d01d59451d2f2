"""What there is to run: figures, theory beside simulation, and how each is shown."""
