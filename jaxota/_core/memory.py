"""How much memory there is: what would take more is refused before anything is made."""

import functools
import os

import jax

from jaxota.errors import InputError


@functools.cache
def of_device() -> int | None:
    """The bytes that a device of its own memory has; None where it shares the machine's."""
    told = jax.local_devices()[0].memory_stats() or {}
    return told.get("bytes_limit")


@functools.cache
def of_machine() -> int:
    """In bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def refuse(names: str, what: str, taken: int) -> None:
    """InputError, by the `names` of what may be lowered, where `what` takes more than there is."""
    device = of_device()
    most, whose = (device, "a device") if device else (of_machine(), "this machine")
    if taken > most:
        raise InputError(
            f"{names} must be smaller: {what} would take {in_words(taken)} of memory, and {whose} "
            f"has {in_words(most)}"
        )


def in_words(count: float) -> str:
    """Bytes as people write them."""
    count = min(count, 1e300)  # whole numbers have no end
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError
