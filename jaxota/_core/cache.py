"""The cache of compiled programs and of downloaded data: one folder of the user."""

import hashlib
import logging
import os
import platform
import sys
from pathlib import Path

from jaxota._core import files
from jaxota.errors import InputError

CACHE = "JAXOTA_CACHE"


def enable_cache(folder: str | os.PathLike[str] | None = None) -> Path | None:
    """Keep compiled programs on disk, so that later Python processes need not compile them again.

    Call it once, before the first simulation. The command `jaxota` does so by itself; in Python
    nothing is kept without this call. It sets JAX's own compilation cache for the whole process,
    and silences what XLA logs when it reads a program from it.

    Args:
        folder: where to keep them; by default the folder of `JAXOTA_CACHE`, else that of
            `JAX_COMPILATION_CACHE_DIR`, else the user's cache folder.

    Returns:
        The folder in use, or None where `JAXOTA_CACHE` is off.
    """
    import jax

    from jaxota._core import inputs  # loads JAX, for which `--help` does not wait

    _silence_xla()
    chosen = os.environ.get(CACHE)
    if folder is None and chosen == "off":
        return None
    if folder is None and not chosen and (theirs := os.environ.get("JAX_COMPILATION_CACHE_DIR")):
        return Path(theirs)
    base = cache_folder() if folder is None else inputs.path("folder", folder)
    place = base / _processor()
    if reason := files.unwritable(place):
        name = CACHE if folder is None else "folder"
        raise InputError(
            f"compiled programs are not kept, as {place} cannot be written ({reason}): name "
            f"another folder with {name}{', or off' if folder is None else ''}"
        )
    jax.config.update("jax_compilation_cache_dir", str(place))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return place


def keep_programs() -> None:
    """Keep the programs of a command, which works without a cache too, and then says so."""
    try:
        enable_cache()
    except InputError as error:
        print(f"jaxota: {error}", file=sys.stderr)


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


def _processor() -> str:
    """Return a name for this kind of processor, as a home folder may be shared by several."""
    try:
        described = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
        kind = [line for line in described.splitlines() if line.startswith(("model name", "flags"))]
    except OSError:
        kind = [platform.processor()]
    return hashlib.sha256("".join(kind).encode()).hexdigest()[:8]


def _silence_xla() -> None:
    """Turn off XLA's log, but not the warnings of JAX itself.

    XLA:CPU reports two tuning hints of its own as missing from the processor, at length, for each
    program that it reads from a cache; a real fault reaches us as an exception.
    """
    import jax

    loggers = [logging.getLogger(name) for name in ("jax", "jaxlib")]
    levels = [logger.level for logger in loggers]
    jax.config.update("jax_logging_level", "CRITICAL")  # the only switch for XLA's log
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
