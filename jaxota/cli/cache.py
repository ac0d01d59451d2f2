"""Compiled programs and prepared data are kept between runs, in a folder of the user's."""

import hashlib
import os
import platform
import re
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from jaxota.errors import InputError

CACHE = "JAXOTA_CACHE"


def folder() -> Path:
    """That which the environment names, or the user's own."""
    import platformdirs

    named = os.environ.get(CACHE) or "off"
    if named == "off":
        return Path(platformdirs.user_cache_dir("jaxota"))
    try:
        return Path(named).expanduser()
    except RuntimeError as error:
        raise InputError(f"{CACHE} must be a folder, or off, got {named}: {error}") from None


def keep_programs() -> None:
    """Keep compiled programs between runs, unless the environment says otherwise.

    Programs are kept apart by kind of processor, as a home folder may be shared by several.
    """
    if os.environ.get(CACHE) == "off":
        return
    import jax

    # XLA:CPU reports two tuning hints of its own as missing from the processor, at length, for each
    # program that it reads from the cache; what is really wrong reaches us as an exception.
    jax.config.update("jax_logging_level", "CRITICAL")
    try:
        described = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
        kind = [line for line in described.splitlines() if line.startswith(("model name", "flags"))]
    except OSError:
        kind = [platform.processor()]
    place = folder() / hashlib.sha256("".join(kind).encode()).hexdigest()[:8]
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        print(
            f"jaxota: compiled programs are not kept, as {place} cannot be written "
            f"({error.strerror}): name another folder with {CACHE}, or off",
            file=sys.stderr,
        )
        return
    jax.config.update("jax_compilation_cache_dir", str(place))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    _heal(place)


def _heal(place: Path) -> None:
    """A program that cannot be read makes room for itself: JAX warns, and would never replace it.

    One that could not be written, as on a full disk, will be such a one.
    """
    shown = warnings.showwarning

    def heal(message: Any, *where: Any, **more: Any) -> None:
        told = re.match(r"Error (reading|writing) persistent .* for '([^']*)'", str(message))
        if told is None:
            shown(message, *where, **more)
        elif told[1] == "reading":
            for entry in place.glob(f"{told[2]}-*-cache"):
                entry.unlink(missing_ok=True)

    warnings.showwarning = heal
