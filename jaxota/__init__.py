"""jaxota: over-the-air federated learning, whole Monte Carlo experiments as one JAX program.

The public names stand in `__init__.pyi`, one per line; each is loaded when it is first used.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
