"""Trials, and settings where trials are few, spread over the devices that JAX has here."""

import contextlib
import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int


class Spread(NamedTuple):
    """How many devices share the settings, and how many the trials of each."""

    settings: int = 1
    trials: int = 1

    @property
    def devices(self) -> int:
        return self.settings * self.trials


def spread(trials: int, settings: int = 1) -> Spread:
    """All local devices: over trials, and over settings as far as trials are too few for it."""
    devices = jax.local_device_count()

    def longest(over: Spread) -> tuple[int, int]:
        """What the busiest device has to do; of equals, more over trials."""
        return math.ceil(settings / over.settings) * math.ceil(trials / over.trials), -over.trials

    ways = range(1, min(devices, trials) + 1)
    return min((Spread(min(devices // n, settings), n) for n in ways), key=longest)


def virtual(count: int | None = None) -> None:
    """On CPU, a device for each core, or so many, unless JAX was told otherwise or has begun."""
    told = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not told and "JAX_NUM_CPU_DEVICES" not in os.environ:
        with contextlib.suppress(RuntimeError):  # it has begun
            jax.config.update("jax_num_cpu_devices", count or len(os.sched_getaffinity(0)))


def unspread(*values: Any) -> bool:
    """Whether values are traced by someone's own program, which says itself where it runs."""
    return any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(values))


def gathered(values: Any) -> Any:
    """Arrays that a program left on several devices, bound to none: others may run on others."""

    def one(x: Any) -> Any:
        spread = isinstance(x, jax.Array) and not unspread(x) and len(x.devices()) > 1
        return jnp.asarray(jax.device_get(x)) if spread else x

    return jax.tree.map(one, values)


class compiled:
    """`jax.jit` of a function of `options`, which say over how many devices it runs, and others.

    On CPU a device splits an operation among all cores. Devices that share the cores do better with
    a core each: their parts would wait for each other.
    """

    def __init__(self, function: Callable[..., Any], static: Sequence[str]) -> None:
        alone = {"xla_cpu_multi_thread_eigen": False}
        self._one: Any = jax.jit(function, static_argnames=static)
        self._many: Any = jax.jit(function, static_argnames=static, compiler_options=alone)
        functools.update_wrapper(self, function)

    def __call__(self, options: Any, *arguments: Any, **named: Any) -> Any:
        return self._of(options)(options, *arguments, **named)

    def lower(self, options: Any, *arguments: Any, **named: Any) -> Any:
        return self._of(options).lower(options, *arguments, **named)

    def _cache_size(self) -> int:
        return sum(each._cache_size() for each in (self._one, self._many))

    def _of(self, options: Any) -> Any:
        many = options.over.devices > 1 and jax.default_backend() == "cpu"
        return self._many if many else self._one


def on_devices(
    function: Callable[..., Any],
    over: Spread,
    values: list[Any],
    axes: Sequence[int | None],
    trials: Int[Array, "trial"] | None = None,
) -> Any:
    """`function(values, trials)` with settings and trials dealt out to the devices.

    Of `values`, those whose axis is 0 have a row for each setting; if any does, results are
    [setting, trial, …], otherwise [trial, …]. What does not divide is padded, and dropped again.
    Without `trials` it is `function(values)`, and results are [setting, …].
    """
    dealt = () if trials is None else (trials,)
    if over.devices == 1:
        return _over_settings(function, values, axes, *dealt)
    swept = [value for value, axis in zip(values, axes, strict=True) if axis == 0]
    sizes = *map(len, swept[:1]), *map(len, dealt)
    padded = [_padded(each, over.trials) for each in dealt]
    values = [
        _padded(value, over.settings) if axis == 0 else value
        for value, axis in zip(values, axes, strict=True)
    ]
    each = *["setting" for _ in swept[:1]], *["trial" for _ in dealt]
    results = jax.shard_map(
        lambda values, *trials: _over_settings(function, values, axes, *trials),
        mesh=_mesh(over),
        in_specs=(
            [P("setting") if axis == 0 else P() for axis in axes],
            *[P("trial")] * len(dealt),
        ),
        out_specs=P(*each),
        check_vma=False,
    )(values, *padded)
    return jax.tree.map(lambda x: x[tuple(map(slice, sizes))], results)


def everywhere(function: Callable[..., Any], over: Spread) -> Callable[..., Any]:
    """`function` on every device with the same values and result: for what they do together."""
    if over.devices == 1:
        return function
    return jax.shard_map(function, mesh=_mesh(over), in_specs=P(), out_specs=P(), check_vma=False)


def in_chunks(function: Callable[..., Any], trials: Int[Array, "trial"], chunk: int) -> Any:
    """`function` of every trial, `chunk` at a time in one program; results stacked [trial, …]."""
    count = len(trials)
    if count <= chunk:
        return jax.vmap(function)(trials)
    # Of sizes that are nearly as large, the one that leaves least to be padded.
    padding = {size: -count % size for size in range(chunk, chunk // 2, -1)}
    pieces = math.ceil(count / min(padding, key=lambda size: padding[size]))
    padded = _padded(trials, pieces).reshape(pieces, -1)
    results = jax.lax.map(jax.vmap(function), padded)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:count], results)


def together(
    function: Callable[..., Any], trials: Int[Array, "trial"], chunk: int, over: Spread
) -> Any:
    """`in_chunks` of trials that devices share: each does its part, and all of them get all."""
    if over.trials == 1:
        return in_chunks(function, trials, chunk)
    parts = _padded(trials, over.trials).reshape(over.trials, -1)
    mine = in_chunks(function, parts[jax.lax.axis_index("trial")], chunk)
    whole = jax.lax.all_gather(mine, "trial", tiled=True)
    return jax.tree.map(lambda x: x[: len(trials)], whole)


def _over_settings(
    function: Callable[..., Any], values: list[Any], axes: Sequence[int | None], *trials: Any
) -> Any:
    if 0 not in axes:
        return function(values, *trials)
    if {len(v) for v, axis in zip(values, axes, strict=True) if axis == 0} == {1}:
        only = [v[0] if axis == 0 else v for v, axis in zip(values, axes, strict=True)]
        # Spares the tracing of an axis that is not one.
        return jax.tree.map(lambda x: x[None], function(only, *trials))
    return jax.vmap(function, (list(axes), *[None] * len(trials)))(values, *trials)


def _padded(values: Any, parts: int) -> Any:
    """As many as divide into so many parts, the last one repeated."""
    size = parts * math.ceil(len(values) / parts)
    return values if size == len(values) else values[jnp.minimum(jnp.arange(size), len(values) - 1)]


@functools.lru_cache
def _mesh(over: Spread) -> Mesh:
    kinds = AxisType.Auto, AxisType.Auto
    devices = jax.local_devices()[: over.devices]
    return jax.make_mesh(tuple(over), ("setting", "trial"), axis_types=kinds, devices=devices)


@jax.custom_batching.sequential_vmap
def eigh(matrix: Float[Array, "d d"]) -> tuple[Float[Array, "d"], Float[Array, "d d"]]:
    """Eigenvalues, ascending, and eigenvectors of a symmetric matrix."""
    values, vectors = jnp.linalg.eigh(matrix)
    return values, vectors


@jax.custom_batching.sequential_vmap
def _eigvalsh(matrix: Float[Array, "d d"]) -> Float[Array, "d"]:
    return jnp.linalg.eigvalsh(matrix)


def eigenvalues(matrices: Float[Array, "n d d"]) -> Float[Array, "n d"]:
    """Those of each of several symmetric matrices."""
    return jax.vmap(_eigvalsh)(matrices)
