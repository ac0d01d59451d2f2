"""Compiled programs are kept between runs, in a folder of the user's."""

import hashlib
import os
import platform
from pathlib import Path

CACHE = "JAXOTA_CACHE"


def keep_programs() -> None:
    """Keep compiled programs between runs, unless the environment says otherwise.

    Programs are kept apart by kind of processor, as a home folder may be shared by several.
    """
    import jax
    import platformdirs

    place = os.environ.get(CACHE) or platformdirs.user_cache_dir("jaxota")
    if place == "off":
        return
    try:
        described = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
        kind = [line for line in described.splitlines() if line.startswith(("model name", "flags"))]
    except OSError:
        kind = [platform.processor()]
    name = hashlib.sha256("".join(kind).encode()).hexdigest()[:8]
    jax.config.update("jax_compilation_cache_dir", str(Path(place) / name))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    # XLA:CPU reports two tuning hints of its own as missing from the processor, at length, for each
    # program that it reads from the cache; what is really wrong reaches us as an exception.
    jax.config.update("jax_logging_level", "CRITICAL")
