"""Before the first round: a noise-free run tells precoder and estimator what to expect."""

import functools
import hashlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxota._core import arguments as _arguments
from jaxota._core import inputs
from jaxota._core import prng as _random
from jaxota._core import stage_checks as _watched
from jaxota._core.devices import compiled, everywhere, gathered, together, unspread
from jaxota._core.part import Numbers
from jaxota._core.state import Info, Plan, State
from jaxota.algorithms import Algorithm
from jaxota.rounds import one_trial
from jaxota.stages.channel import ErrorFree, Ideal
from jaxota.stages.estimate import Identity
from jaxota.stages.precode import Online
from jaxota.tasks.problem import Task

_CALIBRATION = 2**32 - 1  # folded into the experiment's key; trials fold in 0, 1, 2, …


def calibrate(
    key: PRNGKeyArray,
    algorithm: Algorithm,
    task: Task,
    rounds: int,
    trials: int = 100,
    *,
    initial: Numbers | None = None,
) -> Plan:
    """The plan that `simulate` with the same key would measure for `algorithm` on `task`.

    Args:
        key: a random key, that of the experiment.
        algorithm: one such as `jo.cobaaf(...)`; its local rule, compressor and server are run.
        task: one of `jo.tasks`; the first fifth of every user's samples is used.
        rounds: R, as many as the experiment has.
        trials: independent runs to average over, each about the work of a trial of `simulate`.
        initial: [trial, d] models to start from, in turn; by default the task draws them.
    """
    with inputs.noted() as found:
        arguments, options = _arguments.calibration(key, algorithm, task, rounds, trials, initial)
    _arguments.refuse_swept(algorithm=arguments["algorithm"], task=arguments["task"])
    return inputs.or_nan(_program(options, **arguments), found)


_plans: dict[Any, Plan] = {}  # the last ones, by what they were measured of
_REMEMBERED = 32


def remembered(
    options: _arguments.Options,
    key: PRNGKeyArray,
    algorithm: Algorithm,
    task: Task,
    plan: Plan | None,
) -> Plan | None:
    """`plan` where there is one or none is needed, else one that is measured, or was before.

    A plan knows no channel, and algorithms of one local rule, compressor and server share it. In
    somebody's own program it is left to be measured there.
    """
    # In somebody's program, whatever is made is traced.
    if plan is not None or not algorithm.needs or unspread(key, algorithm, task, jnp.arange(1)):
        return plan
    rule = noise_free(algorithm)
    options = _arguments.of_calibration(options, rule, task)
    arguments = {"key": key, "algorithm": rule, "task": task, "initial": None}
    leaves, structure = jax.tree.flatten(arguments)
    values = hashlib.blake2b()
    for leaf in leaves:
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        whole = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
        values.update(repr((whole.shape, whole.dtype)).encode() + whole.tobytes())
    name = options, structure, values.digest()
    if name not in _plans:
        measured = gathered(_program(options, **arguments))
        if len(_plans) >= _REMEMBERED:
            del _plans[next(iter(_plans))]
        _plans[name] = measured
    return _plans[name]


def measure(
    options: _arguments.Options,
    key: PRNGKeyArray,
    algorithm: Algorithm,
    task: Task,
    initial: Float[Array, "trial d"] | None,
) -> Plan:
    """To be compiled: the plan from all calibration trials."""
    trials = jnp.arange(options.calibration_trials, dtype="int32")
    return pool(*observe(options, key, trials, algorithm, task, initial))


def observe(
    options: _arguments.Options,
    key: PRNGKeyArray,
    trials: Int[Array, "trial"],
    algorithm: Algorithm,
    task: Task,
    initial: Float[Array, "trial d"] | None,
) -> tuple[tuple[Array, ...], ...]:
    """To be compiled: noise-free runs of the local rule on a fifth of the data, the paper's V.

    Returns the moments [trial, round, …] of the model block and, if there is one, of the control
    block, in the trials of these numbers [trial].
    """
    key = _random.fold_in(key, np.uint32(_CALIBRATION))
    algorithms = (noise_free(algorithm),)

    def reveal(
        r: Int[Array, ""], before: State, info: Info, after: State
    ) -> tuple[tuple[Array, ...], ...]:
        held: tuple[Any, ...] = before.model[None] + info.moved, info.controls
        return tuple(
            _moments(ledger.energy, x) for ledger, x in zip(info.blocks, held, strict=False)
        )

    def trial(t: Int[Array, ""]) -> Any:
        start = initial[t % len(initial)] if initial is not None else initial
        problem = _watched.head(task, t)
        _, seen = one_trial(
            key, t, algorithms, Ideal(), problem, ((),), start, options.rounds, reveal
        )
        return seen[0]

    return together(trial, trials, options.chunk, options.over)


def noise_free(algorithm: Algorithm) -> Algorithm:
    """The same local rule, compressor and server over error-free links."""
    return algorithm.replace(precode=Online(), estimate=Identity(), medium=ErrorFree())


def pool(model: tuple[Array, ...], *control: tuple[Array, ...]) -> Plan:
    """The plan from the moments that `observe` returns."""
    energy, mean, var, average_mean, average_var = _pool(*model)
    plan = Plan(energy, mean, var, average_mean=average_mean, average_var=average_var)
    if not control:
        return plan
    energy, mean, var, average_mean, average_var = _pool(*control[0])
    return plan.replace(
        control_energy=energy,
        control_mean=mean,
        control_var=var,
        average_control_mean=average_mean,
        average_control_var=average_var,
    )


@functools.partial(compiled, static=("options",))
def _program(options: _arguments.Options, **arguments: Any) -> Plan:
    def run(arguments: dict[str, Any]) -> Plan:
        return measure(options, **arguments)

    return everywhere(run, options.over)(arguments)


def _moments(energy: Float[Array, "user"], held: Float[Array, "user d"]) -> tuple[Array, ...]:
    """Of what users send its energy [user]; over coordinates, mean and variance of what each user
    holds [user] and of the average [].
    """
    average = held.mean(0)
    return energy, held.mean(-1), held.var(-1), average.mean(), average.var()


def _pool(
    energy: Array, mean: Array, var: Array, average_mean: Array, average_var: Array
) -> tuple[Array, ...]:
    """Per-trial moments [trial, round, …] → moments over all coordinates and trials [round, …]."""
    return (
        energy.mean(0).max(-1),
        mean.mean(0),
        var.mean(0) + mean.var(0),
        average_mean.mean(0),
        average_var.mean(0) + average_mean.var(0),
    )
