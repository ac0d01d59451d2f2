"""What a user can mend has an exception of its own; every other one is a fault of ours."""


class InputError(ValueError):
    """Something given to jaxota is not allowed: one line that names it, and what it may be."""
