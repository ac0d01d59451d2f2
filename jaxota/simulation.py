"""All trials of an experiment, calibration included, as one compiled program."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxota._core import arguments as _arguments
from jaxota._core import inputs
from jaxota._core import stage_checks as _watched
from jaxota._core.devices import compiled, in_chunks, on_devices
from jaxota._core.part import Numbers
from jaxota._core.state import Info, Plan, State
from jaxota.algorithms import Algorithm
from jaxota.calibration import measure, remembered
from jaxota.history import History, check_scores
from jaxota.rounds import one_trial
from jaxota.stages.channel import Channel
from jaxota.tasks.problem import Problem, Task


def simulate(
    key: PRNGKeyArray,
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
        key: a random key; trial t's random numbers depend on it and on t alone.
        algorithm: one such as `jo.cobaaf(...)`.
        channel: a `jo.Channel(...)`.
        task: one of `jo.tasks`.
        rounds: R, communication rounds.
        trials: independent Monte Carlo runs.
        plan: what calibration would yield; by default it is measured, once for all algorithms that
            share what `calibrate` runs of them, and remembered.
        initial: [trial, d] models to start from; by default the task draws them, as calibration
            does: to calibrate from models of your own, give the plan of `calibrate(...,
            initial=...)`.
        every: the task is scored after rounds every, 2·every, …
        calibration_trials: runs that calibration averages over, where a plan is measured: each is
            about the work of a trial, so that fewer of them, or a `plan`, save most of a short
            run's time.
        user_power: also keep every user's power ratio, [trial, round, user].

    What is not allowed raises `InputError`. Inside your own `jax.jit` or `jax.vmap` shapes, counts
    and choices do; of traced numbers that are not allowed (a step size below 0, more participants
    than users) all results are NaN. Everything is computed in float32, also where
    `jax_enable_x64` is set: the numbers are the same, but for what optax rounds otherwise.
    """
    experiment = key, algorithm, channel, task, rounds, trials
    with inputs.noted() as found:
        arguments, options = _arguments.experiment(
            *experiment, plan, initial, every, calibration_trials, user_power
        )
    _arguments.refuse_swept(**{k: arguments[k] for k in ("algorithm", "channel", "task", "plan")})
    measured = {name: arguments[name] for name in ("key", "algorithm", "task", "plan")}
    arguments["plan"] = remembered(options, **measured)
    return inputs.or_nan(_program(options, **arguments), found)


def run(
    options: _arguments.Options,
    key: PRNGKeyArray,
    trials: Int[Array, "trial"],
    algorithm: Algorithm,
    channel: Channel,
    task: Task,
    plan: Plan | None,
    initial: Float[Array, "trial d"] | None,
) -> History:
    """To be compiled: one algorithm in the trials of these numbers [trial]."""
    if algorithm.needs and plan is None:
        plan = measure(options, key, algorithm, task, initial=None)
    return run_all(options, key, trials, (algorithm,), channel, task, (plan,), initial)[0]


def run_all(
    options: _arguments.Options,
    key: PRNGKeyArray,
    trials: Int[Array, "trial"],
    algorithms: Sequence[Algorithm],
    channel: Channel,
    task: Task,
    plans: Sequence[Plan | None],
    initial: Float[Array, "trial d"] | None,
) -> tuple[History, ...]:
    """To be compiled: several algorithms side by side, each with its plan."""
    every = options.every
    moments = tuple(map(Algorithm.moments, algorithms, plans))

    def trial(t: Int[Array, ""]) -> Any:
        problem = _watched.problem(task, t)
        score = functools.partial(_watched.score, problem)

        def reveal(r: Int[Array, ""], before: State, info: Info, after: State) -> Any:
            if every == 1:
                return score(info.output), _seen(info, options.user_power)
            none = jax.tree.map(jnp.zeros_like, jax.eval_shape(score, info.output))
            # r is the same in all trials, so that this stays a branch under vmap.
            scores = jax.lax.cond(r % every == 0, score, lambda _: none, info.output)
            return scores, _seen(info, options.user_power)

        start = initial[t] if initial is not None else initial
        run = key, t, algorithms, channel, problem, moments, start, options.rounds
        states, seen = one_trial(*run, reveal)
        last = tuple(
            _last(algorithm, state, problem if options.average_scores else None)
            for algorithm, state in zip(algorithms, states, strict=True)
        )
        return last, seen

    lasts, seen = in_chunks(trial, trials, options.chunk)
    return tuple(
        _history(last, score, ledger, every)
        for last, (score, ledger) in zip(lasts, seen, strict=True)
    )


@functools.partial(compiled, static=("options",))
def _program(options: _arguments.Options, trials: Int[Array, "trial"], **arguments: Any) -> History:
    names, values = zip(*arguments.items(), strict=True)

    def mine(values: list[Any], trials: Int[Array, "trial"]) -> History:
        return run(options, trials=trials, **dict(zip(names, values, strict=True)))

    return on_devices(mine, options.over, list(values), [None] * len(values), trials)


def _seen(info: Info, user_power: bool) -> dict[str, Array]:
    """What the history keeps of a round."""
    reports = sum(ledger.reports for ledger in info.blocks)
    seen = {"participants": info.participants, "reports": jnp.asarray(reports)}
    for block, ledger in zip(("", "control_"), info.blocks, strict=False):
        seen |= {
            f"{block}power": jnp.max(ledger.power),
            f"mean_{block}power": jnp.mean(ledger.power),
            f"{block}error": ledger.error,
            f"{block}deviation": ledger.deviation,
        }
        if user_power:
            seen[f"user_{block}power"] = ledger.power
    return seen


def _last(algorithm: Algorithm, state: State, problem: Problem | None) -> dict[str, Any]:
    """What the history keeps of a trial's end; a `problem` also scores the average."""
    return {
        "model": algorithm.server.output(state.model, state.server),
        "average": state.average,
        "average_scores": _watched.score(problem, state.average) if problem else {},
    }


def _history(
    last: dict[str, Any], scores: dict[str, Any], seen: dict[str, Any], every: int
) -> History:
    check_scores(scores)
    thinned = jax.tree.map(lambda x: x[:, every - 1 :: every], scores)
    return History(scores=thinned, **seen, **last, every=every)
