"""Calibrations: measured once for all settings, chunks and processes that share one."""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import jax
import numpy as np

from jaxota._core import inputs
from jaxota.calibration import noise_free
from jaxota.study import programs
from jaxota.study.descriptions import describe, fingerprint
from jaxota.study.programs import Plans, Programs
from jaxota.study.settings import Group


class Keeper(Protocol):
    """What remembers plans beyond a process, by their names."""

    def load(self, name: str) -> Plans | None:
        """Those of a name, if they are there."""

    def save(self, name: str, plans: Plans) -> Plans:
        """Keep them; returns those that are kept, should another process have been faster."""


class Calibrations:
    """The plans of a study's settings."""

    def __init__(self, compiled: Programs) -> None:
        self._programs = compiled
        self._known: dict[str, Plans] = {}
        self._signatures: dict[int, tuple[str, list[Any]]] = {}
        self.adrift: set[int] = set()  # numbers of the algorithms of which one diverged

    def plans(
        self, group: Group, row: int, report: Callable[..., None], keeper: Keeper | None
    ) -> Plans:
        """The plans of a setting, one for each rule of its group."""
        if max(group.rules) < 0:
            return ()
        name = self._name(group, row)
        if name not in self._known:
            found = keeper.load(name) if keeper else None
            if found is None:
                found = programs.calibrate(self._programs, group, row, report)
                found = keeper.save(name, found) if keeper else found
            self._known[name] = found
            bad = programs.diverged(found)
            self.adrift |= {n for n, rule in enumerate(group.rules) if rule >= 0 and bad[rule]}
        return self._known[name]

    def count(self, groups: Iterable[Group], rows: Iterable[int]) -> int:
        """How many different calibrations these settings need."""
        needing = [group for group in groups if max(group.rules) >= 0]
        return len({self._name(group, row) for group in needing for row in rows})

    def _name(self, group: Group, row: int) -> str:
        """What a setting's calibration is known by: all that it depends on, which is no channel."""
        if id(group) not in self._signatures:
            self._signatures[id(group)] = _signature(group, self._programs.key)
        common, swept = self._signatures[id(group)]
        digest = hashlib.sha256(common.encode())
        for values in swept:
            digest.update(values[row].tobytes())
        return digest.hexdigest()[:32]


def _signature(group: Group, key: Any) -> tuple[str, list[Any]]:
    """What all settings of a group share, and the values that each has its own of."""
    parts = group.parts
    needing = [
        noise_free(parts["algorithms"][group.rules.index(rule)])
        for rule in range(1 + max(group.rules))
    ]
    own, swept = [], []
    for name, part in (*(("algorithm", a) for a in needing), ("task", parts["task"])):
        leaves, structure = jax.tree.flatten(part)
        extra = inputs.extra_axes(part, name).values()
        swept += [_plain(v) for v, more in zip(leaves, extra, strict=True) if more]
        fixed = [0 if more else v for v, more in zip(leaves, extra, strict=True)]
        own.append(describe(jax.tree.unflatten(structure, fixed)))
    options = group.options
    return fingerprint([own, describe(key), options.rounds, options.calibration_trials]), swept


def _plain(values: Any) -> np.ndarray:
    """Numbers, of random keys, too."""
    if jax.numpy.issubdtype(values.dtype, jax.dtypes.prng_key):
        values = jax.random.key_data(values)
    return np.asarray(values)
