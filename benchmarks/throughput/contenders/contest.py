"""The rules that every contender keeps: what work is, how it is checked and how it is timed.

A contender is a script of its own, run as `python contender.py WORK.npz REPEATS` by the interpreter
of the environment that holds its library. It offers `prepare(work) → run`, and `run(models, rounds,
full)` gives the models [trial, d] that FedAvg, or COTAF where there is noise, makes of the initial
`models` [trial, d]; if `full`, with the gradient of all samples instead of minibatches, which makes
the result a fact to compare. NumPy and the standard library are all that this file needs.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

LEAST = 1.0  # seconds of all repetitions together, so that quick contenders have more of them
Run = Callable[[np.ndarray, int, bool], np.ndarray]


class Work(NamedTuple):
    """What is to be computed: `kind` is the model, regression, softmax or cnn."""

    kind: str
    features: np.ndarray  # [user, sample, ...]
    targets: np.ndarray  # [user, sample]: numbers, or labels of classes
    models: np.ndarray  # [trial, d], initial
    steps: int  # K
    batch: int  # samples of a step, drawn with replacement
    step_size: float  # η
    rounds: int  # R
    ratio: float = 0.0  # noise over power, 0 for FedAvg
    shapes: tuple[tuple[int, ...], ...] = ()  # of the parameters that stand in a model, in order

    def save(self, path: str) -> None:
        np.savez(path, **{**self._asdict(), "shapes": json.dumps(self.shapes)})

    @classmethod
    def load(cls, path: str) -> "Work":
        with np.load(path, allow_pickle=False) as file:
            values = {name: file[name] for name in cls._fields}
        scalars = {k: v.item() for k, v in values.items() if v.ndim == 0}
        shapes = tuple(map(tuple, json.loads(scalars.pop("shapes"))))
        return cls(**{**values, **scalars, "shapes": shapes})


def take_part(
    prepare: Callable[[Work], Run],
    about: dict[str, Any],
    trials: int | None = None,
    rounds: int | None = None,
    minibatches: bool = True,
    more: dict[str, Any] | None = None,
) -> None:
    """What a contender calls: its facts as a line of JSON.

    `about` tells versions and the like. A slow contender takes fewer `trials` and `rounds` than the
    work has, and draws no noise; its rate is what counts. Without `minibatches` the gradient is of
    all samples. `more` facts may be found by running.
    """
    work, repeats = Work.load(sys.argv[1]), int(sys.argv[2])
    still = run = prepare(work._replace(ratio=0.0))
    checked, noise = still(work.models[:2], 2, True), None
    if work.ratio and trials is None:
        run = prepare(work)
        both = (np.asarray(each(work.models, 1, True), float) for each in (run, still))
        noise = ((next(both) - next(both)) ** 2).mean(-1).tolist()  # [trial]
    models, rounds = work.models[:trials], min(rounds or work.rounds, work.rounds)
    seconds = []
    while len(seconds) < 1 + repeats or sum(seconds[1:]) < LEAST:  # the first one warms up
        start = time.perf_counter()
        run(models, rounds, not minibatches)
        seconds.append(time.perf_counter() - start)
    facts = {
        "about": {"cores": len(os.sched_getaffinity(0)), **about},
        "trials": len(models),
        "rounds": rounds,
        "user_steps": len(models) * rounds * len(work.features) * work.steps,
        "first": seconds[0],
        "seconds": seconds[1:],
        "checked": np.asarray(checked, float).tolist(),
        "noise": noise,
        **(more or {}),
    }
    print(json.dumps(facts))
