"""jaxota: over-the-air federated learning, whole Monte Carlo experiments as one JAX program.

The public names are listed in `__init__.pyi`; each is loaded when it is first used.
"""

from jaxota.errors import lazy_names

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
__all__.remove("open")  # `from jaxota import *` must not replace the builtin
