"""`simulate`: all trials of an experiment, calibration included, as one compiled program."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxota._core import inputs, stage_checks
from jaxota._core.arguments import Options, experiment, refuse_swept
from jaxota._core.devices import compiled, in_chunks, on_devices
from jaxota._core.part import Numbers, Seed, suggest_keywords
from jaxota._core.state import Info, Plan, State
from jaxota.algorithms import Algorithm
from jaxota.calibration import cached_plan, measure
from jaxota.history import History
from jaxota.rounds import one_trial
from jaxota.stages.channel import Channel
from jaxota.tasks.problem import Problem, Task


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


def run_all(
    options: Options,
    key: PRNGKeyArray,
    trials: Int[Array, "trial"],
    algorithms: Sequence[Algorithm],
    channel: Channel,
    task: Task,
    plans: Sequence[Plan | None],
    initial: Float[Array, "trial d"] | None,
) -> tuple[History, ...]:
    """Run several algorithms side by side, each with its plan; to be compiled."""
    every = options.every
    moments = tuple(map(Algorithm.moments, algorithms, plans))

    def trial(t: Int[Array, ""]) -> Any:
        problem = stage_checks.problem(task, t)
        score = stage_checks.checked_problem(problem).score

        def reveal(r: Int[Array, ""], before: State, info: Info, after: State) -> Any:
            if every == 1:
                return score(info.output), _record(info, options.user_power)
            zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(score, info.output))
            # r is the same in all trials, so that this stays a branch under vmap.
            scores = jax.lax.cond(r % every == 0, score, lambda _: zeros, info.output)
            return scores, _record(info, options.user_power)

        start = initial[t] if initial is not None else None
        run = key, t, algorithms, channel, problem, moments, start, options.rounds
        states, revealed = one_trial(*run, reveal)
        last = tuple(
            _last(algorithm, state, problem if options.average_scores else None)
            for algorithm, state in zip(algorithms, states, strict=True)
        )
        return last, revealed

    lasts, revealed = in_chunks(trial, trials, options.chunk)
    return tuple(
        _history(last, scores, records, every)
        for last, (scores, records) in zip(lasts, revealed, strict=True)
    )


def _record(info: Info, user_power: bool) -> dict[str, Array]:
    """Return the fields of a history that describe one round."""
    reports = sum(ledger.reports for ledger in info.blocks)
    record = {"participants": info.participants, "reports": jnp.asarray(reports)}
    for block, ledger in zip(("", "control_"), info.blocks, strict=False):
        record |= {
            f"{block}power": jnp.max(ledger.power),
            f"mean_{block}power": jnp.mean(ledger.power),
            f"{block}error": ledger.error,
            f"{block}deviation": ledger.deviation,
        }
        if user_power:
            record[f"user_{block}power"] = ledger.power
    return record


def _last(algorithm: Algorithm, state: State, problem: Problem | None) -> dict[str, Any]:
    """Return the fields of a history at a trial's end; a `problem` also scores the average."""
    model = algorithm.server.output(state.model, state.server)
    scores = stage_checks.checked_problem(problem).score(state.average) if problem else {}
    return {"model": model, "average": state.average, "average_scores": scores}


def _history(
    last: dict[str, Any], scores: dict[str, Any], records: dict[str, Any], every: int
) -> History:
    stage_checks.check_scores(scores)
    # Rounds in between were not scored: `reveal` put zeros there.
    scores = jax.tree.map(lambda x: x[:, every - 1 :: every], scores)
    return History(scores=scores, **records, **last, every=every)
