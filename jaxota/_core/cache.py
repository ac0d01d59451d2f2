"""The cache of compiled programs and of downloaded data: one folder of the user."""

import hashlib
import os
import platform
import sys
from pathlib import Path

from jaxota._core import files
from jaxota.errors import InputError

CACHE = "JAXOTA_CACHE"


def cache_folder() -> Path:
    """Return the folder for programs and downloaded data: the user's, or `JAXOTA_CACHE`."""
    import platformdirs

    named = os.environ.get(CACHE) or "off"
    if named == "off":
        return Path(platformdirs.user_cache_dir("jaxota"))
    try:
        return Path(named).expanduser()
    except RuntimeError as error:
        raise InputError(f"{CACHE} must be a folder, or off, got {named}: {error}") from None


def keep_programs() -> None:
    """Keep compiled programs between runs, unless the environment says otherwise, or where.

    Programs are kept apart by kind of processor, as a home folder may be shared by several.
    """
    chosen = os.environ.get(CACHE)
    if chosen == "off" or (not chosen and os.environ.get("JAX_COMPILATION_CACHE_DIR")):
        return
    import jax

    jax.local_devices()  # before warnings are turned off: JAX warns of a GPU that it cannot use
    # XLA:CPU reports two tuning hints of its own as missing from the processor, at length, for each
    # program that it reads from the cache; a real fault reaches us as an exception.
    jax.config.update("jax_logging_level", "CRITICAL")
    try:
        described = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
        kind = [line for line in described.splitlines() if line.startswith(("model name", "flags"))]
    except OSError:
        kind = [platform.processor()]
    place = cache_folder() / hashlib.sha256("".join(kind).encode()).hexdigest()[:8]
    if reason := files.unwritable(place):
        print(
            f"jaxota: compiled programs are not kept, as {place} cannot be written "
            f"({reason}): name another folder with {CACHE}, or off",
            file=sys.stderr,
        )
        return
    jax.config.update("jax_compilation_cache_dir", str(place))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
