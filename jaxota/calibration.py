"""`calibrate`: noise-free runs before the experiment tell precoder and estimator what to expect."""

import functools
import hashlib
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxota._core import inputs, prng, stage_checks
from jaxota._core.arguments import Options, calibration, calibration_options, refuse_swept
from jaxota._core.devices import compiled, everywhere, gathered, together
from jaxota._core.part import Numbers, Seed, suggest_keywords
from jaxota._core.state import Info, Ledger, Plan, State
from jaxota.algorithms import Algorithm
from jaxota.rounds import one_trial
from jaxota.stages.channel import ErrorFree, Ideal
from jaxota.stages.estimate import Identity
from jaxota.stages.precode import Online
from jaxota.tasks.problem import Task

_CALIBRATION = 2**32 - 1  # folded into the experiment's key; trials fold in 0, 1, 2, …


@suggest_keywords
def calibrate(
    key: Seed,
    algorithm: Algorithm,
    task: Task,
    rounds: int,
    trials: int = 100,
    *,
    initial: Numbers | None = None,
) -> Plan:
    """Measure the plan that `simulate` with the same key would measure for `algorithm` on `task`.

    Args:
        key: a random key, or an int n for `jax.random.key(n)`: that of the experiment.
        algorithm: one such as `jo.cobaaf(...)`; its local rule, compressor and server are run.
        task: one of `jo.tasks`; the first fifth of every user's samples is used.
        rounds: R, as many as the experiment has.
        trials: independent runs to average over, each about the work of a trial of `simulate`.
        initial: [trial, d] models to start from, in turn; by default the task draws them.
    """
    with inputs.traced_checks() as checks:
        arguments, options = calibration(key, algorithm, task, rounds, trials, initial)
    refuse_swept(algorithm=arguments["algorithm"], task=arguments["task"])
    return inputs.nan_unless(checks, _program(options, **arguments))


@functools.partial(compiled, static=("options",), stage="calibrating")
def _program(options: Options, **arguments: Any) -> Plan:
    return everywhere(lambda values: measure(options, **values), options.over)(arguments)


_cache: dict[Any, Plan] = {}  # the last plans, by what they were measured with
_CACHE_SIZE = 32


def cached_plan(
    options: Options,
    key: PRNGKeyArray,
    algorithm: Algorithm,
    task: Task,
    plan: Plan | None,
    **others: Any,
) -> Plan | None:
    """Return `plan`, or where one is needed and none is given a measured one, new or cached.

    A plan depends on no `others` of an experiment's arguments, such as the channel, and algorithms
    with the same local rule, compressor and server share it. A user's own program measures its
    plans itself.
    """
    # An array made inside a program that is being traced is traced, too, whatever the arguments.
    traced = inputs.is_traced(key, algorithm, task, jnp.arange(1))
    if plan is not None or not algorithm.needs or traced:
        return plan
    rule = noise_free(algorithm)
    arguments = {"key": key, "algorithm": rule, "task": task, "initial": None}
    options = calibration_options(options, arguments)
    leaves, structure = jax.tree.flatten(arguments)
    name = options, structure, tuple(map(_digest, leaves))
    if name not in _cache:
        measured = gathered(_program(options, **arguments))
        if len(_cache) >= _CACHE_SIZE:
            del _cache[next(iter(_cache))]
        _cache[name] = measured
    return _cache[name]


_LARGE = 2**20  # bytes of an array whose digest is remembered
_digests: dict[int, bytes] = {}  # identity of a large jax array → its digest, until it is gone


def _digest(leaf: Array) -> bytes:
    """Return a digest of an array; a large one, which never changes, is read once only."""
    if (known := _digests.get(id(leaf))) is not None:
        return known
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    array = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
    hashed = hashlib.blake2b(repr((array.shape, array.dtype)).encode())
    hashed.update(np.ascontiguousarray(array).reshape(-1).view("uint8").data)
    digest = hashed.digest()
    if array.nbytes >= _LARGE and isinstance(leaf, jax.Array):
        _digests[id(leaf)] = digest
        weakref.finalize(leaf, _digests.pop, id(leaf), None)
    return digest


def measure(options: Options, key: PRNGKeyArray, *parts: Any, **named: Any) -> Plan:
    """Measure the plan in all calibration trials; the other arguments are those of `observe`."""
    trials = jnp.arange(options.calibration_trials, dtype="int32")
    return pool(*observe(options, key, trials, *parts, **named))


def observe(
    options: Options,
    key: PRNGKeyArray,
    trials: Int[Array, "trial"],
    algorithm: Algorithm,
    task: Task,
    initial: Float[Array, "start d"] | None,
) -> tuple[tuple[Array, ...], ...]:
    """Run the local rule without noise on a fifth of the data, the paper's V; to be compiled.

    Returns:
        The moments [trial, round, …] of the model block and, if there is one, of the control
        block, in the trials of these numbers [trial].
    """
    key = prng.fold_in(key, np.uint32(_CALIBRATION))
    algorithms = (noise_free(algorithm),)

    def reveal(r: Int[Array, ""], before: State, info: Info, after: State) -> Any:
        # The paper's prior is on the local weights θ_i and on the controls c_i.
        held: tuple[Any, ...] = before.model[None] + info.moved, info.controls
        model, *control = (_moments(*block) for block in zip(info.blocks, held, strict=False))
        # That of `UpdateMMSE` is on the updates.
        return (*model, info.moved.mean(-1), info.moved.var(-1)), *control

    def trial(t: Int[Array, ""]) -> Any:
        start = initial[t % len(initial)] if initial is not None else None
        problem = stage_checks.problem(task, t, calibration=True)
        run = key, t, algorithms, Ideal(), problem, ((),), start, options.rounds
        return one_trial(*run, reveal)[1][0]

    return together(trial, trials, options.chunk, options.over)


def noise_free(algorithm: Algorithm) -> Algorithm:
    """Return the same local rule, compressor and server over error-free links."""
    return algorithm.replace(precode=Online(), estimate=Identity(), medium=ErrorFree())


def _moments(ledger: Ledger, held: Float[Array, "user d"]) -> tuple[Array, ...]:
    """Return the energy [user] of what users send, and moments over the coordinates.

    These are mean and variance of each user's vector [user], and of their average [].
    """
    average = held.mean(0)
    return ledger.energy, held.mean(-1), held.var(-1), average.mean(), average.var()


def pool(*blocks: tuple[Array, ...]) -> Plan:
    """Make the plan of the moments that `observe` returns."""
    fields: dict[str, Array] = {}
    for names, moments in zip(_FIELDS, blocks, strict=False):
        fields |= zip(names.split(), _over_trials(*moments), strict=True)
    return Plan(**fields)


# The plan's names for the moments of the model block, and of the control block.
_FIELDS = (
    "update_energy model_mean model_var average_mean average_var update_mean update_var",
    "control_energy control_mean control_var average_control_mean average_control_var",
)


def _over_trials(energy: Array, *moments: Array) -> tuple[Array, ...]:
    """Pool energy and pairs of mean and variance [trial, round, …] over trials."""
    pooled = [energy.mean(0).max(-1)]
    for mean, var in zip(moments[::2], moments[1::2], strict=True):
        pooled += mean.mean(0), var.mean(0) + mean.var(0)  # within trials plus between them
    return tuple(pooled)
