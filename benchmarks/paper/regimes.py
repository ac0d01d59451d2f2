"""What `jaxota run regimes` runs: who is best where, under the online precoder.

Two maps of synthetic regression, SNR × model_spread and SNR × data_spread, at fig1's other
settings. A block of controls costs as much as one of models: "COBAAF, half" has half of the power
for each block, and is read at half the rounds, by which time it has used the channel as often as
the others.
"""

from typing import Any

import jax
import numpy as np

from jaxota._core import inputs as _validate
from jaxota._core.part import Scalar, part
from jaxota.algorithms import Algorithm, baaf, cobaaf, cotaf, noisy_fedavg
from jaxota.experiments import draws
from jaxota.stages.channel import Block, Channel
from jaxota.stages.precode import Online
from jaxota.study.executor import StudyJob
from jaxota.study.grid import Axis, Grid
from jaxota.study.study import Study
from jaxota.tasks import synthetic_regression

DRAWS, ROUNDS, CALIBRATION_TRIALS = 20, 60, 20
SNR_DB = (-10.0, -5.0, 0.0, 5.0, 10.0, 15.0, 20.0)
MODEL_SPREADS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
DATA_SPREADS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
SPREAD_OF_DATA, SPREAD_OF_MODELS = 0.1, 1.0  # where the other is swept
USERS, STEPS = 20, 10
HALF = "COBAAF, half"
LEVEL = 0.95


@part
class Halved:
    """`Online`, with half of the budget."""

    needs = ()

    def energy(self, block: Block) -> Scalar:
        return 2.0 * Online().energy(block)


def algorithms() -> dict[str, Algorithm]:
    """Those that are compared."""
    local: dict[str, Any] = {"step_size": 1e-2, "steps": STEPS, "batch": 10}
    return {
        "noisy FedAvg": noisy_fedavg(**local),
        "COTAF": cotaf(**local, precode=Online()),
        "BAAF": baaf(**local, precode=Online()),
        "COBAAF": cobaaf(**local, precode=Online()),
        HALF: cobaaf(**local, precode=Halved()),
    }


def spreads() -> list[tuple[float, float]]:
    """Of data and of models, on both maps."""
    models = [(SPREAD_OF_DATA, spread) for spread in MODEL_SPREADS]
    return list(dict.fromkeys([*models, *((spread, SPREAD_OF_MODELS) for spread in DATA_SPREADS)]))


def job(seed: int, trials: int) -> StudyJob:
    """What the driver runs: one sweep."""
    k_data, k_trials = jax.random.split(jax.random.key(_validate.seed(seed)))
    data, models = zip(*spreads(), strict=True)
    labels = tuple(f"{a:g}, {b:g}" for a, b in spreads())
    over = (
        Axis("spreads", {"data_spread": data, "model_spread": models}, labels),
        Axis("snr_db", {"snr_db": SNR_DB}, SNR_DB),
        draws.axis(k_data, DRAWS),
    )
    study = Study(
        algorithms(),
        Channel(noise=draws.Renewed()),
        synthetic_regression(k_data, users=USERS, samples=100, dim=10),
        ROUNDS,
        _validate.whole("trials", trials, 1),
        over=Grid(over),
        key=k_trials,
        every=ROUNDS // 2,
        calibration_trials=CALIBRATION_TRIALS,
        keep="mean",
        reference="COTAF",
        name="regimes",
    )
    return StudyJob(study)


def final_gaps(dataset: Any) -> Any:
    """Mean gaps [algorithm, spreads, snr_db, draw], infinite where a trial diverged.

    Of `HALF` at half the rounds, of the others at the last.
    """
    whole = dataset.used == dataset.trials
    gaps = dataset.gap_mean.where(whole & np.isfinite(dataset.gap_mean), np.inf)
    halved = gaps.algorithm == HALF
    return gaps.isel(evaluation=0, drop=True).where(halved, gaps.isel(evaluation=-1, drop=True))


def ratio(gaps: Any, other: str, one: str) -> np.ndarray:
    """log10 of the gap of `other` over that of `one` [spreads, snr_db, draw]; 0 if both diverge."""
    above, below = (gaps.sel(algorithm=name).values for name in (other, one))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.log10(above) - np.log10(below)
    return np.where(np.isnan(found), 0.0, found)


def settled(values: np.ndarray) -> np.ndarray:
    """Whether the interval of the median over draws leaves out 0 [spreads, snr_db]."""
    within = np.apply_along_axis(lambda x: draws.median_interval(x, LEVEL), -1, values)
    low, high, level = np.moveaxis(within, -1, 0)
    return ((low > 0) | (high < 0)) & (level >= LEVEL)


def best(gaps: Any, among: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Whose median gap is the lowest [spreads, snr_db], by number, −1 where all diverge, and
    whether it is below the second, paired, beyond doubt.
    """
    medians = np.stack([np.median(gaps.sel(algorithm=name).values, -1) for name in among])
    order = np.argsort(medians, 0)
    pairs = np.full((*medians.shape[1:], gaps.sizes["draw"]), 0.0)
    for first in range(len(among)):
        for second in range(len(among)):
            here = (order[0] == first) & (order[1] == second)
            pairs[here] = ratio(gaps, among[second], among[first])[here]
    return np.where(np.isfinite(medians.min(0)), order[0], -1), settled(pairs)
