"""Devices: which ones programs are made for, and how trials and settings are spread over them."""

import contextlib
import contextvars
import functools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int

from jaxota._core.inputs import is_traced
from jaxota._core.progress import RUNNING, reporting


class Spread(NamedTuple):
    """Numbers of devices that share the settings, and that share the trials of each setting."""

    settings: int = 1
    trials: int = 1

    @property
    def devices(self) -> int:
        return self.settings * self.trials


_target: contextvars.ContextVar[tuple[Any, ...]] = contextvars.ContextVar("target", default=())


def target() -> tuple[Any, ...]:
    """Return the devices that programs are made for: those of all processes, or of `made_for`."""
    return _target.get() or tuple(jax.devices())


def platform() -> str:
    """Return the platform of the devices that programs are made for: cpu, gpu or tpu."""
    return target()[0].platform


@contextlib.contextmanager
def made_for(devices: Sequence[Any] | None) -> Iterator[None]:
    """Make programs for these devices, here or elsewhere; for None, for all."""
    token = _target.set(tuple(devices or ()))
    try:
        yield
    finally:
        _target.reset(token)


@contextlib.contextmanager
def locally() -> Iterator[None]:
    """Make programs for the devices of this process alone, where `jax.distributed` has others."""
    with made_for(jax.local_devices()) if processes() > 1 else contextlib.nullcontext():
        yield


def spread(trials: int, settings: int = 1) -> Spread:
    """Spread over all devices: over trials, and over settings if trials are too few."""
    devices = len(target())

    def load(over: Spread) -> tuple[int, int]:
        """Sort key: the work of the busiest device; ties favour trials."""
        return math.ceil(settings / over.settings) * math.ceil(trials / over.trials), -over.trials

    ways = [Spread(min(devices // n, settings), n) for n in range(1, min(devices, trials) + 1)]
    if processes() > 1:  # each must take part in every program: devices may repeat another's work
        ways = [Spread(devices // n, n) for n in range(1, devices + 1) if devices % n == 0]
    return min(ways, key=load)


def processes() -> int:
    """Return the number of processes, of `jax.distributed`, whose devices programs are made for."""
    return len({device.process_index for device in target()})


def virtual(count: int | None = None) -> None:
    """Give JAX a CPU device for each core, or `count`, unless it is configured or has started."""
    configured = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not configured and "JAX_NUM_CPU_DEVICES" not in os.environ:
        with contextlib.suppress(RuntimeError):  # JAX has started
            jax.config.update("jax_num_cpu_devices", count or len(os.sched_getaffinity(0)))


def gathered(values: Any) -> Any:
    """Return `values` with arrays of several devices bound to none, for programs on others."""

    def leaf(x: Any) -> Any:
        several = isinstance(x, jax.Array) and not is_traced(x) and len(x.devices()) > 1
        return jnp.asarray(jax.device_get(x)) if several else x

    return jax.tree.map(leaf, values)


class compiled:
    """`jax.jit` of a function whose first argument, `options`, says over how many devices it runs.

    On CPU a device splits an operation among all cores. Devices that share the cores do better with
    a core each: the pieces of their operations would wait for each other. Where the progress of a
    call is shown, it reports `compiling`, and then the `stage`.
    """

    def __init__(
        self, function: Callable[..., Any], static: Sequence[str], stage: str = RUNNING
    ) -> None:
        self._function, self._stage = function, stage
        one_core = {"xla_cpu_multi_thread_eigen": False}
        self._one: Any = jax.jit(function, static_argnames=static)
        self._many: Any = jax.jit(function, static_argnames=static, compiler_options=one_core)
        functools.update_wrapper(self, function)

    def __call__(self, options: Any, *arguments: Any, **named: Any) -> Any:
        function, report = self._for(options), reporting.get()
        if report is None or is_traced(arguments, named):
            results = function(options, *arguments, **named)
        else:
            report("compiling")
            function.lower(options, *arguments, **named).compile()  # which the call finds again
            report(self._stage)
            results = jax.block_until_ready(function(options, *arguments, **named))
        # What several processes hold together is of no use to a program of one of them.
        return gathered(results) if options.over.devices > 1 and processes() > 1 else results

    def lower(self, options: Any, *arguments: Any, **named: Any) -> Any:
        return self._for(options).lower(options, *arguments, **named)

    def lower_elsewhere(self, options: Any, arguments: Any, **static: Any) -> Any:
        """Lower the program for the devices of `made_for`, which may be a topology's."""
        mesh = _mesh(options.over)
        sharding = NamedSharding(mesh, P()) if mesh.size > 1 else SingleDeviceSharding(target()[0])

        def shape(x: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(jnp.shape(x), x.dtype, sharding=sharding)

        # A function of its own: what JAX has traced for the devices here must not be taken for it.
        function = functools.partial(self._function, options, **static)
        return jax.jit(lambda named: function(**named)).lower(jax.tree.map(shape, arguments))

    def _cache_size(self) -> int:
        return self._one._cache_size() + self._many._cache_size()

    def _for(self, options: Any) -> Any:
        many = options.over.devices > 1 and platform() == "cpu"
        return self._many if many else self._one


def on_devices(
    function: Callable[..., Any],
    over: Spread,
    values: list[Any],
    axes: Sequence[int | None],
    trials: Int[Array, "trial"] | None = None,
) -> Any:
    """Call `function(values, trials)` with settings and trials [trial] dealt out to the devices.

    Values whose axis is 0, not None, have a row for each setting. Results are [setting, trial, …],
    without the axes of settings or trials that are not given. What does not divide is padded.
    """
    dealt = () if trials is None else (trials,)
    if over.devices == 1:
        return _over_settings(function, values, axes, *dealt)
    swept = [value for value, axis in zip(values, axes, strict=True) if axis == 0]
    sizes = *map(len, swept[:1]), *map(len, dealt)
    names = *["setting" for _ in swept[:1]], *["trial" for _ in dealt]
    values = [
        _padded(value, over.settings) if axis == 0 else value
        for value, axis in zip(values, axes, strict=True)
    ]
    results = jax.shard_map(
        lambda values, *trials: _over_settings(function, values, axes, *trials),
        mesh=_mesh(over),
        in_specs=(
            [P("setting") if axis == 0 else P() for axis in axes],
            *[P("trial")] * len(dealt),
        ),
        out_specs=P(*names),
        check_vma=False,
    )(values, *(_padded(numbers, over.trials) for numbers in dealt))
    results = jax.tree.map(lambda x: x[tuple(map(slice, sizes))], results)
    if processes() > 1:  # each receives all results
        whole = NamedSharding(_mesh(over), P())
        results = jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, whole), results)
    return results


def everywhere(function: Callable[..., Any], over: Spread) -> Callable[..., Any]:
    """Run `function` on every device with the same values and result, for `together`."""
    if over.devices == 1:
        return function
    return jax.shard_map(function, mesh=_mesh(over), in_specs=P(), out_specs=P(), check_vma=False)


def in_chunks(function: Callable[..., Any], trials: Int[Array, "trial"], chunk: int) -> Any:
    """Call `function` for every trial, `chunk` at a time in one program; results [trial, …]."""
    count = len(trials)
    if count <= chunk:
        return jax.vmap(function)(trials)
    # Of the sizes nearly as large as `chunk`, the one that needs the least padding.
    padding = {size: -count % size for size in range(chunk, chunk // 2, -1)}
    pieces = math.ceil(count / min(padding, key=lambda size: padding[size]))
    padded = _padded(trials, pieces).reshape(pieces, -1)
    results = jax.lax.map(jax.vmap(function), padded)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:count], results)


def together(
    function: Callable[..., Any], trials: Int[Array, "trial"], chunk: int, over: Spread
) -> Any:
    """Call `in_chunks` with trials that devices share: each runs some, and all receive all."""
    if over.trials == 1:
        return in_chunks(function, trials, chunk)
    shares = _padded(trials, over.trials).reshape(over.trials, -1)
    results = in_chunks(function, shares[jax.lax.axis_index("trial")], chunk)
    results = jax.lax.all_gather(results, "trial", tiled=True)
    return jax.tree.map(lambda x: x[: len(trials)], results)


def _over_settings(
    function: Callable[..., Any], values: list[Any], axes: Sequence[int | None], *trials: Any
) -> Any:
    if 0 not in axes:
        return function(values, *trials)
    if {len(v) for v, axis in zip(values, axes, strict=True) if axis == 0} == {1}:
        only = [v[0] if axis == 0 else v for v, axis in zip(values, axes, strict=True)]
        # A single setting is traced faster without an axis for it.
        return jax.tree.map(lambda x: x[None], function(only, *trials))
    return jax.vmap(function, (list(axes), *[None] * len(trials)))(values, *trials)


def _padded(values: Any, parts: int) -> Any:
    """Repeat the last of the values until they divide into so many parts."""
    size = parts * math.ceil(len(values) / parts)
    return values if size == len(values) else values[jnp.minimum(jnp.arange(size), len(values) - 1)]


def _mesh(over: Spread) -> Mesh:
    return _mesh_of(over, target()[: over.devices])


@functools.lru_cache
def _mesh_of(over: Spread, devices: tuple[Any, ...]) -> Mesh:
    kinds = AxisType.Auto, AxisType.Auto
    return jax.make_mesh(tuple(over), ("setting", "trial"), axis_types=kinds, devices=devices)


# Eigenvalues that several devices of one host can compute at once. With jaxlib 0.10 on CPU, LAPACK
# deals a batch of matrices out to a pool of threads and waits for them on a thread of that very
# pool: where several virtual devices do so at once, all wait for ever. One matrix at a time,
# nothing is dealt out. GPUs and TPUs compute a batch at once.


def _one_by_one_on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` of one matrix, whose batches run one matrix at a time on CPU alone."""
    sequential = jax.custom_batching.sequential_vmap(function)

    @functools.wraps(function)
    def chosen(matrix: Any) -> Any:
        return jax.lax.platform_dependent(matrix, cpu=sequential, default=function)

    return chosen


@_one_by_one_on_cpu
def eigh(matrix: Float[Array, "d d"]) -> tuple[Float[Array, "d"], Float[Array, "d d"]]:
    """Return the eigenvalues, ascending, and the eigenvectors of a symmetric matrix."""
    values, vectors = jnp.linalg.eigh(matrix)
    return values, vectors


@_one_by_one_on_cpu
def _eigvalsh(matrix: Float[Array, "d d"]) -> Float[Array, "d"]:
    return jnp.linalg.eigvalsh(matrix)


def eigenvalues(matrices: Float[Array, "n d d"]) -> Float[Array, "n d"]:
    """Return the eigenvalues of a batch of symmetric matrices."""
    return jax.vmap(_eigvalsh)(matrices)


# Signs of hardware for each extra of jaxota that lets JAX use it: device files, or a variable.
_SIGNS = {
    ("GPU", "cuda12"): ("/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg"),
    ("TPU", "tpu"): ("/dev/accel0", "TPU_ACCELERATOR_TYPE"),
}


def unused_hardware() -> str | None:
    """Return a line about a GPU or TPU that is here while JAX computes on the CPU, or None."""
    if jax.default_backend() != "cpu" or jax.config.values["jax_platforms"]:
        return None  # in use, or the user chose
    for (kind, extra), signs in _SIGNS.items():
        if any(sign in os.environ or Path(sign).exists() for sign in signs):
            fix = f"pip install 'jaxota[{extra}]', or JAX_PLATFORMS=cpu if that is meant"
            return f"NOT on the {kind} of this machine, which JAX cannot use: {fix}"
    return None


def devices() -> str:
    """Describe the devices that JAX computes on, such as "2 CPU devices" or "1 GPU: NVIDIA H100".

    Where this machine has a GPU or TPU that JAX does not use, the line says so, and how to mend it.
    """
    found = jax.devices()
    kind = {"cpu": "CPU device", "gpu": "GPU", "tpu": "TPU"}.get(
        found[0].platform, found[0].platform
    )
    line = f"{len(found)} {kind}{'s' if len(found) > 1 else ''}"
    if found[0].platform != "cpu":
        line += f": {found[0].device_kind}"
    if jax.process_count() > 1:
        line += f", of {jax.process_count()} processes"
    return f"{line}, {unused}" if (unused := unused_hardware()) else line
