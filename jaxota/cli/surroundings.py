"""What the command finds around it: seen to, and found well, before the work."""

import contextlib
import os

from jaxota.cli import cache as _cache
from jaxota.errors import InputError


def prepare(on_images: bool) -> None:
    """What must be set before JAX begins, and what would fail after the work."""
    from jaxota._core import devices as _devices

    _refuse_backend()
    _devices.virtual()
    _cache.keep_programs()
    _refuse_platform()
    if on_images:
        _silence_tfds()


def _refuse_platform() -> None:
    import jax

    try:
        jax.devices()
    except Exception as error:  # of JAX or of a plugin
        said = f": {str(error).splitlines()[0]}" if str(error) else ""
        raise InputError(
            "JAX_PLATFORMS must name what JAX finds here, such as cpu, got "
            f"{os.environ.get('JAX_PLATFORMS')!r}{said}"
        ) from None


def _refuse_backend() -> None:
    """Matplotlib looks at it when it is loaded."""
    named = os.environ.get("MPLBACKEND")
    if named:
        try:
            import matplotlib  # noqa: F401
        except ValueError:
            raise InputError(
                f"MPLBACKEND must be one that matplotlib knows, got {named!r}"
            ) from None


def _silence_tfds() -> None:
    """Its bars would run through ours."""
    with contextlib.suppress(ImportError):
        import tensorflow_datasets

        tensorflow_datasets.disable_progress_bar()
