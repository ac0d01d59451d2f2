"""Tasks: the loss to minimise, and which user holds which data.

A task offers `users`, `dim`, `problem(trial)` and `floats_per_trial(batch)`; the problem offers the
gradients and scores of one trial. `tasks.problem` has both protocols. The public names are listed
in `__init__.pyi`; each is imported when it is first used.
"""

import lazy_loader

from jaxota.errors import unknown_name

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name in __all__:
        return _load(name)
    raise unknown_name(__name__, name, __all__)
