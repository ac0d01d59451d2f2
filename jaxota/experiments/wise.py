"""What `jaxota run wise` runs: WISE, at one setting, beside baselines at five step sizes.

The map is 120 regimes of synthetic regression: SNR × spreads × N × K. Data draws of a run are new
for each seed, and none of them is a draw that WISE was designed on.
"""

from typing import Any

import jax
import numpy as np

from jaxota import _validate
from jaxota.algorithms import Algorithm, baaf, cobaaf, cotaf, noisy_fedavg, wise
from jaxota.channel import Channel
from jaxota.errors import InputError
from jaxota.precode import Online
from jaxota.studies.grids import grid
from jaxota.studies.job import StudyJob
from jaxota.studies.study import Study
from jaxota.tasks import synthetic_regression

DESIGN = range(1000)  # the draws on which choices may be made; those of a test lie beyond
DRAWS, ROUNDS, EVERY, CALIBRATION_TRIALS = 16, 60, 5, 20
SNR_DB = (-10.0, 0.0, 10.0, 20.0, 30.0)
SPREADS = ((0.0, 0.0), (0.1, 1.0), (0.1, 10.0), (1.0, 1.0))  # of data, and of models
USERS, STEPS = (5, 20, 100), (1, 10)
STEP_SIZE, BATCH = 1e-2, 10
STEP_SIZES = (1e-3, 3e-3, STEP_SIZE, 3e-2, 1e-1)  # from which the baselines' best is chosen


def draws(seed: int) -> list[int]:
    """The data draws of a seed's test."""
    first = DESIGN.stop + DRAWS * seed
    return list(range(first, first + DRAWS))


def algorithms() -> dict[str, Algorithm]:
    """WISE, and what it is compared with, at the same peak power."""
    local: dict[str, Any] = {"step_size": STEP_SIZE, "steps": max(STEPS), "batch": BATCH}
    return {
        "WISE": wise(**local),
        "noisy FedAvg": noisy_fedavg(**local),
        "COTAF": cotaf(**local, precode=Online()),
        "BAAF": baaf(**local, precode=Online()),
        "COBAAF": cobaaf(**local, precode=Online()),
    }


def study(
    seed: int,
    trials: int,
    compared: dict[str, Algorithm],
    step_sizes: tuple[float, ...],
    name: str = "wise",
) -> Study:
    """The map of the algorithms that are compared, as any other study."""
    if draws(seed)[-1] >= 2**32:
        raise InputError(f"seed must be < {2**32 // DRAWS - DESIGN.stop}, got {seed}")
    data, models = zip(*SPREADS, strict=True)
    over = grid(
        {"data_spread": data, "model_spread": models},
        snr_db=SNR_DB,
        users=USERS,
        steps=STEPS,
        step_size=step_sizes,
        **{"task.key": draws(seed)},
    )
    return Study(
        compared,
        Channel(),
        synthetic_regression(jax.random.key(0), users=max(USERS), samples=100, dim=10),
        ROUNDS,
        trials,
        over=over,
        key=seed,
        every=EVERY,
        calibration_trials=CALIBRATION_TRIALS,
        keep="mean",
        name=name,
    )


def job(seed: int, trials: int) -> StudyJob:
    """What the driver runs."""
    seed, trials = _validate.seed(seed), _validate.whole("trials", trials, 1)
    return StudyJob(study(seed, trials, algorithms(), STEP_SIZES))


def gaps(dataset: Any) -> Any:
    """Mean gaps [algorithm, …, step_size, draw, evaluation], infinite where a trial diverged."""
    whole = dataset.used == dataset.trials
    return dataset.gap_mean.where(whole & np.isfinite(dataset.gap_mean), np.inf)


def ratios(dataset: Any, hindsight: bool) -> Any:
    """WISE's mean gap over that of the best baseline [setting, snr_db, users, steps, draw, round].

    In `hindsight` each baseline has the step size that is best in this regime, on this draw and at
    this round, and at the last one the better of its last model and its weighted average.
    """
    found = gaps(dataset).rename({"task.key": "draw", "evaluation": "round"})
    mine = found.sel(algorithm="WISE", step_size=STEP_SIZE, drop=True)
    others = found.drop_sel(algorithm="WISE")
    if not hindsight:
        return mine / others.sel(step_size=STEP_SIZE, drop=True).min("algorithm")
    average = dataset.average_gap_mean.rename({"task.key": "draw"}).drop_sel(algorithm="WISE")
    average = average.where(np.isfinite(others.isel(round=-1)), np.inf)
    last = others["round"] == others["round"][-1]
    others = others.where(~last, np.minimum(others, average.broadcast_like(others)))
    return mine / others.min(["algorithm", "step_size"])
