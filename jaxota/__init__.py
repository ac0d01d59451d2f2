"""jaxota: over-the-air federated learning, whole Monte Carlo experiments as one JAX program.

The public names are listed in `__init__.pyi`; each is loaded when it is first used.
"""

import lazy_loader

from jaxota.errors import unknown_name

__version__ = "0.1.0"

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
_public = frozenset(__all__)
__all__.remove("open")  # `from jaxota import *` must not replace the builtin


def __getattr__(name: str) -> object:
    if name in _public:
        return _load(name)
    raise unknown_name(__name__, name, _public)
