"""Known sets of images: their published files, how they are kept, and the tasks made of them."""
