"""Stop early: trials run block by block of rounds, and those that reached a score run no more."""

import dataclasses
import math
import numbers
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxota._core import inputs, stage_checks
from jaxota._core.arguments import Options
from jaxota._core.devices import spread
from jaxota._core.scoring import scorer
from jaxota._core.state import Resumed
from jaxota.errors import InputError
from jaxota.history import History

BLOCKS = 20  # looks at the scores in a run, by default
PIECES = 8  # calls that share the trials: the trials left fill fewer and fewer of them


@dataclasses.dataclass(frozen=True)
class Stop:
    """When a trial ends: `jo.simulate(..., stop=jo.Stop("gap", 1e-3))`.

    Attributes:
        metric: the name of a score, also of a metric of your own.
        target: the score to reach.
        rising: whether the score must rise to the target; by default an accuracy must, and any
            other score must fall to it.
        every: the scores are looked at after rounds every, 2·every, …; None for a twentieth of the
            run. A trial ends at the first look after it reached the target.
    """

    metric: str
    target: float
    rising: bool | None = None
    every: int | None = None

    def reached(self, scores: np.ndarray) -> np.ndarray:
        """Return which trials reach the target in any of their scores [trial, evaluation]."""
        rising = self.metric == "accuracy" if self.rising is None else self.rising
        return np.any(scores >= self.target if rising else scores <= self.target, -1)


def check_stop(stop: Any, options: Options, arguments: Any) -> Stop:
    """Return `stop` with its number of rounds between two looks; InputError if it does not fit."""
    if inputs.is_traced(arguments):
        raise InputError("stop must be None in a program of your own, whose length is fixed")
    if not isinstance(stop, Stop):
        raise InputError(f'stop must be one such as jo.Stop("gap", 1e-3), got {inputs.shown(stop)}')
    scores = jax.eval_shape(lambda: _scores(options, arguments["task"]))
    inputs.chosen("stop.metric", stop.metric, tuple(scores))
    target = stop.target
    if isinstance(target, bool) or not isinstance(target, numbers.Real) or np.isnan(target):
        raise InputError(f"stop.target must be a number, got {inputs.shown(target)}")
    if stop.rising is not None:
        inputs.chosen("stop.rising", stop.rising, (False, True))
    if options.keep_state:
        raise InputError("keep_state must be False with stop: trials end in different rounds")
    looks = math.ceil(options.rounds / options.every / BLOCKS) * options.every
    every = looks if stop.every is None else inputs.whole("stop.every", stop.every, 1)
    if every % options.every:
        wanted = f"a multiple of every = {options.every}, the rounds that are scored"
        raise InputError(f"stop.every must be {wanted}, got {every}")
    return dataclasses.replace(stop, every=min(every, options.rounds))


def _scores(options: Options, task: Any) -> dict[str, Any]:
    """Return the scores of a model, for their names."""
    problem = stage_checks.problem(task, 0)
    model = jnp.zeros(task.dim, "float32")
    return scorer(problem, options.kept)(model, jnp.zeros((task.users, task.dim), "float32"))[0]


def run_until(
    stop: Stop, options: Options, program: Callable[..., History], arguments: dict[str, Any]
) -> History:
    """Run all trials by `program` until each has reached its score; rows after that are NaN."""
    trials, start, done = arguments["trials"], arguments["start"], 0
    parts = {k: v for k, v in arguments.items() if k not in ("trials", "start")}
    total = options.done + options.rounds
    size = math.ceil(len(trials) / PIECES)
    options = options._replace(over=spread(size), keep_state=True, total=total)
    chunk = min(options.chunk, size)
    left, last_round = np.arange(len(trials)), np.zeros(len(trials), np.float32)
    states = start if options.done else None
    whole: dict[str, np.ndarray] = {}
    first = options.done
    while len(left) and done < options.rounds:
        count = min(stop.every or 1, options.rounds - done)
        block = options._replace(rounds=count, done=0, chunk=chunk)
        begin = start if states is None else Resumed(states, jnp.int32(first + done))
        pieces = [left[i : i + size] for i in range(0, len(left), size)]
        # The last piece is filled up, so that it is no other program.
        filled = [np.pad(piece, (0, size - len(piece)), mode="edge") for piece in pieces]
        runs = [program(block, trials=trials[at], start=begin, **parts) for at in filled]
        histories = jax.device_get([run.replace(state=None) for run in runs])
        for piece, history in zip(pieces, histories, strict=True):
            _put(whole, history, piece, done, len(trials), options)
        for at, run in zip(filled, runs, strict=True):
            assert run.state is not None  # options ask for it
            states = _merged(states, run.state.leaves, at, len(trials))
        done += count
        last_round[left] = first + done
        reached = [
            stop.reached(np.asarray(history.scores[stop.metric])[: len(piece)])
            for piece, history in zip(pieces, histories, strict=True)
        ]
        left = left[~np.concatenate(reached)]
    return _history(histories[0], whole, last_round, options)


def _merged(states: Any, leaves: tuple[Any, ...], at: np.ndarray, trials: int) -> tuple[Any, ...]:
    """Return the states [trial, …] of all trials with those of some trials renewed."""
    if states is None:
        states = [jnp.zeros((trials, *leaf.shape[1:]), leaf.dtype) for leaf in leaves]
    return tuple(old.at[at].set(new) for old, new in zip(states, leaves, strict=True))


def _put(
    whole: dict[str, np.ndarray],
    history: History,
    trials: np.ndarray,
    done: int,
    of: int,
    options: Options,
) -> None:
    """Write the results of these trials in a block of rounds into those of the whole run."""
    lengths = {"round": options.rounds, "evaluation": options.rounds // options.every}
    for name, (dims, values) in history._results().items():
        rows: Any = slice(None)
        shape = [of, *values.shape[1:]]
        if dims[1] in lengths:
            before = done // (options.every if dims[1] == "evaluation" else 1)
            rows, shape[1] = slice(before, before + values.shape[1]), lengths[dims[1]]
        target = whole.setdefault(name, np.full(shape, np.nan, values.dtype))
        target[trials, rows] = values[: len(trials)]


def _history(
    like: History, whole: dict[str, np.ndarray], last_round: np.ndarray, options: Options
) -> History:
    """Return the history of the whole run, with the fields that a block's history has."""
    names = [k for k in whole if hasattr(like, k) and k not in like.scores]
    return like.replace(
        scores={k: whole[k] for k in like.scores},
        user_scores={k: whole[f"user_{k}"] for k in like.user_scores},
        **{k: whole[k] for k in names},
        last_round=last_round,
        done=options.done,
    )
