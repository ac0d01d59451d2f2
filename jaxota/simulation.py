"""All trials of an experiment, calibration included, as one compiled program."""

import jax
import jax.numpy as jnp

from jaxota import _arguments
from jaxota.calibration import measure
from jaxota.history import History, check_scores
from jaxota.rounds import in_chunks, one_trial
from jaxota.types import Plan


def simulate(
    key,
    algorithm,
    channel,
    task,
    rounds: int,
    trials: int,
    plan: Plan | None = None,
    initial=None,
    every: int = 1,
    calibration_trials: int = 100,
    user_power: bool = False,
) -> History:
    """Run `algorithm` over `channel` on `task`: `trials` independent runs of `rounds` rounds.

    plan: what calibration would yield; by default it is measured, inside the same program.
    initial: [trial, d] models to start from; by default the task draws them, as calibration does:
        to calibrate from models of your own, give the plan of `calibrate(..., initial=...)`.
    every: the task is scored after rounds every, 2·every, …
    user_power: also keep every user's power ratio, [trial, round, user].
    """
    arguments, options = _arguments.experiment(
        key,
        algorithm,
        channel,
        task,
        rounds,
        trials,
        plan,
        initial,
        every,
        calibration_trials,
        user_power,
    )
    _arguments.refuse_swept(**{k: arguments[k] for k in ("algorithm", "channel", "task", "plan")})
    return _program(options, **arguments)


def run(
    options: _arguments.Options, key, trials, algorithm, channel, task, plan, initial
) -> History:
    """To be compiled: one algorithm in the trials of these numbers [trial]."""
    if isinstance(plan, tuple) and algorithm.needs_plan:
        plan = measure(options, key, algorithm, task, initial=())
    return run_all(options, key, trials, (algorithm,), channel, task, (plan,), initial)[0]


def run_all(
    options: _arguments.Options, key, trials, algorithms, channel, task, plans, initial
) -> tuple[History, ...]:
    """To be compiled: several algorithms side by side, each with its plan."""
    every, user_power = options.every, options.user_power
    moments = tuple(map(_rows, algorithms, plans))

    def trial(t):
        problem = task.problem(t)

        def reveal(r, before, info, after):
            none = jax.tree.map(jnp.zeros_like, jax.eval_shape(problem.score, after.model))
            # r is the same in all trials, so that this stays a branch under vmap.
            score = jax.lax.cond(r % every == 0, problem.score, lambda _: none, after.model)
            peak = jax.tree.map(jnp.max, (info.power, info.control_power))
            users = (info.power, info.control_power) if user_power else ((), ())
            return score, peak, (info.error, info.control_error), info.participants, users

        start = initial if isinstance(initial, tuple) else initial[t]
        return one_trial(
            key, t, algorithms, channel, problem, moments, start, options.rounds, reveal
        )

    states, seen = in_chunks(trial, trials, options.chunk)
    return tuple(_history(state, *s, every) for state, s in zip(states, seen, strict=True))


_program = jax.jit(run, static_argnames="options")


def _rows(algorithm, plan):
    """What the algorithm uses of its plan, to be scanned over rounds."""
    if not algorithm.needs_plan:
        return ()
    return plan.model_moments, plan.control_moments if algorithm.local.controlled else ()


def _history(state, scores, power, error, participants, users, every) -> History:
    check_scores(scores)
    return History(
        scores=jax.tree.map(lambda x: x[:, every - 1 :: every], scores),
        power=power[0],
        control_power=power[1],
        error=error[0],
        control_error=error[1],
        participants=participants,
        user_power=users[0],
        user_control_power=users[1],
        model=state.model,
        average=state.average,
        every=every,
    )
