"""The framework-neutral engine of infinite-memory; `__init__.pyi` lists its public names.

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
