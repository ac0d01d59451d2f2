"""Tasks: the loss to minimise, and which user holds which data.

A task offers `users`, `dim`, `problem(trial)` and `floats_per_trial(batch)`; the problem offers the
gradients and scores of one trial. `tasks.problem` has both protocols. The public names are listed
in `__init__.pyi`; each is imported when it is first used.
"""

from jaxota.errors import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
