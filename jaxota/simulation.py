"""`simulate`: all trials of an experiment, calibration included, as one compiled program."""

import functools
from typing import Any

from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxota._core import inputs
from jaxota._core.arguments import Options, experiment, refuse_swept
from jaxota._core.devices import compiled, on_devices
from jaxota._core.part import Numbers, Seed, suggest_keywords
from jaxota._core.state import Plan
from jaxota.algorithms import Algorithm
from jaxota.calibration import cached_plan, measure
from jaxota.history import History
from jaxota.rounds import run_all
from jaxota.stages.channel import Channel
from jaxota.tasks.problem import Task


@suggest_keywords
def simulate(
    key: Seed,
    algorithm: Algorithm,
    channel: Channel,
    task: Task,
    rounds: int,
    trials: int,
    *,
    plan: Plan | None = None,
    initial: Numbers | None = None,
    every: int = 1,
    calibration_trials: int = 100,
    user_power: bool = False,
) -> History:
    """Run `algorithm` over `channel` on `task`: `trials` independent runs of `rounds` rounds.

    Args:
        key: a random key, or an int n for `jax.random.key(n)`; the random numbers of trial t depend
            on the key and on t alone.
        algorithm: one such as `jo.cobaaf(...)`.
        channel: a `jo.Channel(...)`.
        task: one of `jo.tasks`.
        rounds: R, communication rounds.
        trials: independent Monte Carlo runs.
        plan: the result of a calibration; by default it is measured, once for all algorithms that
            share what `calibrate` runs, and remembered.
        initial: [trial, d] models to start from; by default the task draws them, as calibration
            does: to calibrate from models of your own, give the plan of `calibrate(...,
            initial=...)`.
        every: the task is scored after rounds every, 2·every, …
        calibration_trials: runs that calibration averages over, where a plan is measured. Each is
            about the work of a trial, so that fewer of them, or a `plan`, save most of a short
            run's time.
        user_power: also keep every user's power ratio, [trial, round, user].

    Invalid arguments raise `InputError` before anything is compiled. Inside your own `jax.jit` or
    `jax.vmap`, shapes, counts and choices do so too; invalid traced numbers (a step size below 0,
    more participants than users) make all results NaN. Everything is computed in float32, also
    where `jax_enable_x64` is set: the numbers are the same, but for what optax rounds otherwise.
    """
    setup = key, algorithm, channel, task, rounds, trials
    with inputs.traced_checks() as checks:
        arguments, options = experiment(
            *setup, plan, initial, every, calibration_trials, user_power
        )
    refuse_swept(**{k: arguments[k] for k in ("algorithm", "channel", "task", "plan")})
    planned = {name: arguments[name] for name in ("key", "algorithm", "task", "plan")}
    arguments["plan"] = cached_plan(options, **planned)
    return inputs.nan_unless(checks, _program(options, **arguments))


@functools.partial(compiled, static=("options",))
def _program(options: Options, trials: Int[Array, "trial"], **arguments: Any) -> History:
    names, values = zip(*arguments.items(), strict=True)

    def on_device(values: list[Any], trials: Int[Array, "trial"]) -> History:
        return run(options, trials=trials, **dict(zip(names, values, strict=True)))

    return on_devices(on_device, options.over, list(values), [None] * len(values), trials)


def run(
    options: Options,
    key: PRNGKeyArray,
    trials: Int[Array, "trial"],
    algorithm: Algorithm,
    channel: Channel,
    task: Task,
    plan: Plan | None,
    initial: Float[Array, "trial d"] | None,
) -> History:
    """Run one algorithm in the trials of these numbers; to be compiled."""
    if algorithm.needs and plan is None:
        plan = measure(options, key, algorithm, task, initial=None)
    return run_all(options, key, trials, (algorithm,), channel, task, (plan,), initial)[0]
