"""What `jaxota run bounds` shows: bounds against R beside the runs that they speak of."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxota import theory
from jaxota._core import inputs as _validate
from jaxota.algorithms import Algorithm, baaf, cobaaf
from jaxota.stages.channel import Channel
from jaxota.study.describe import describe, versions
from jaxota.study.executor import Pieces
from jaxota.study.layout import Layout, Variable
from jaxota.theory.side_by_side import CALIBRATION_TRIALS, Beside, beside, well_conditioned


@dataclasses.dataclass(frozen=True)
class Case:
    """A theorem and the algorithm it is of, to be laid beside each other."""

    label: str
    theorem: Callable[..., theory.Bound]  # a function of theory
    algorithm: Algorithm  # its step size is the proofs'
    channel: Channel
    rounds: tuple[int, ...]
    task: dict  # of `well_conditioned`
    # Why a run lies above its bound, if one does.
    cause: str = dataclasses.field(default="unknown", metadata={"told": False})


DRAWS = 5
_LOCAL: dict[str, Any] = {"step_size": 1.0, "steps": 4, "batch": 5}
_FULL: dict[str, Any] = {"step_size": 1.0, "steps": 4}
CASES = (
    Case("BAAF", theory.theorem_1, baaf(**_LOCAL), Channel(10.0), (12, 25, 50, 100, 200, 400), {}),
    Case(
        "COBAAF", theory.theorem_2, cobaaf(**_LOCAL), Channel(10.0), (6, 12, 25, 50, 100, 200), {}
    ),
    Case(
        "COBAAF, 4 of 8 users",
        theory.theorem_3,
        cobaaf(**_LOCAL),
        Channel(10.0, participants=4),
        (125, 250, 500, 1000),
        {},
    ),
    # Where Theorem 1 fails: no minibatch noise hides the bias of the MMSE estimate.
    Case(
        "BAAF, full gradients",
        theory.theorem_1,
        baaf(**_FULL),
        Channel(0.0),
        (50, 200, 800),
        {"users": 20, "spread": 1.0},
        "the proof takes the MMSE estimate to be unbiased, with the error of Prop. 1; its prior, "
        "calibrated on a fifth of the data and with users taken as independent, pulls it elsewhere",
    ),
)
ERRORS = 4  # standard errors by which a gap must lie above its bound to count
PARTS: dict[str, Any] = {"bound": theory.Bound, "constants": theory.Constants}
FLAGS = "bound_kept", "bound_same_step", "bound_long_enough"
OTHER_STEPS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.5, 3.0)  # of the proofs', where these are not the answer


def job(seed: int, trials: int) -> Pieces:
    """Every case of `CASES` on `DRAWS` data draws: a chunk is a case on one of them."""
    seed, trials = _validate.seed(seed), _validate.whole("trials", trials, 2)
    sizes = {
        "case": len(CASES),
        "draw": DRAWS,
        "R": max(len(case.rounds) for case in CASES),
        "trial": trials,
    }
    each = "case", "draw", "R"
    fields = [f"{k}_{f.name}" for k, part in PARTS.items() for f in dataclasses.fields(part)]
    variables = {name: Variable(each) for name in (*fields, "excess", "power", "least")}
    return Pieces(
        "bounds",
        Layout(
            sizes,
            {"case": 1, "draw": 1},
            {"gap": Variable((*each, "trial")), **variables},
            {"case": ("case", [case.label for case in CASES])},
        ),
        {
            "experiment": "bounds",
            "seed": seed,
            "trials": trials,
            "cases": describe(CASES),
            "draws": DRAWS,
            "errors": ERRORS,
            "other_steps": describe(OTHER_STEPS),
            "calibration_trials": CALIBRATION_TRIALS,
            **versions(),
        },
        functools.partial(_chunk, seed, trials),
        steps=sum(_steps(case, trials) for case in CASES),
    )


def _steps(case: Case, trials: int) -> float:
    """Local steps of users, twice for each R: to find the step size, and at it.

    Calibration's are among them; what other step sizes may take is not.
    """
    runs = 2 * len(case.rounds) * DRAWS * (trials + CALIBRATION_TRIALS)
    users = well_conditioned(0, 1, **case.task).counts.shape[-1]
    return float(runs * max(case.rounds) * users * case.algorithm.local.steps)


def _chunk(seed: int, trials: int, number: int) -> dict[str, np.ndarray]:
    """What is found of a case on one data draw: [R], and of gaps [R, trial]."""
    place, draw = divmod(number, DRAWS)
    case = CASES[place]
    whole = well_conditioned(seed, DRAWS, **case.task)
    task = jax.tree.map(lambda x: x[draw : draw + 1], whole)
    setting = case.theorem, jax.random.key(seed), case.algorithm, case.channel, task, case.rounds
    run = functools.partial(beside, *setting, trials)
    found = run()
    held: dict[str, Any] = {"gap": found.gap, "excess": found.excess, "power": found.power}
    for prefix in PARTS:
        fields = vars(getattr(found, prefix))
        held |= {f"{prefix}_{name}": values for name, values in fields.items()}
    if violated(found).any():
        held["least"] = _least(run, found)
    return {name: np.asarray(values)[0] for name, values in held.items()}


def violated(found: Beside) -> np.ndarray:
    """[draw, R] where all conditions hold and the gap lies above the bound for certain."""
    error = found.gap.std(-1, ddof=1) / np.sqrt(found.gap.shape[-1])
    sure = found.gap.mean(-1) - ERRORS * error > np.asarray(found.bound.total)
    return np.asarray(found.bound.applies) & sure


def _least(run: Callable[..., Beside], found: Beside) -> np.ndarray:
    """The least gap/bound [draw, R] of the proofs' step size and others that are allowed.

    The theorems say that there is one for which the bound holds.
    """
    ratios = [np.asarray(found.gap.mean(-1) / np.asarray(found.bound.total))]
    for factor in OTHER_STEPS:
        step_size = np.minimum(factor * found.bound.step_size, found.bound.largest_step)
        other = run(step_size=step_size)
        ratio = other.gap.mean(-1) / np.asarray(other.bound.total)
        ratios.append(np.where(other.bound.applies, ratio, np.inf))
    return np.min(ratios, 0)
