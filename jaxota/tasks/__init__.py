"""What is learned, and who holds which data.

A task offers `users`, `dim` and `problem(trial)`. The problem is what the engine computes with:
`init(key)` [d], `gradient(model, user, samples)` [d], `full_gradient(model, user)` [d],
`score(model)` (a dict of numbers by their names), `head()` (the first fifth of every user's
samples, for calibration), `counts` [user] and `strong_convexity`. `floats_per_trial(batch)` bounds
what a trial's data take in memory.

The names stand in `__init__.pyi`, one per line; each is loaded when it is first used.
"""

import lazy_loader

from jaxota.errors import unknown_name

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name in __all__:
        return _load(name)
    raise unknown_name(__name__, name, __all__)
