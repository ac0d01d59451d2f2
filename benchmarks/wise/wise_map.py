"""What `jaxota run wise`, `offmap` and `rivals` run: WISE, at one setting, beside its competitors.

A map is regimes of synthetic regression: shapes × spreads × SNR. Data draws of a run are new for
each seed, and none of them is a draw that WISE was designed on.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from jaxota._core import inputs as _validate
from jaxota.algorithms import Algorithm, baaf, cobaaf, cotaf, noisy_fedavg, wise
from jaxota.errors import InputError
from jaxota.stages.channel import Channel
from jaxota.stages.compress import Centred
from jaxota.stages.precode import MeanPower, Online
from jaxota.study.executor import StudyJob
from jaxota.study.grid import Grid, grid
from jaxota.study.study import Study
from jaxota.tasks import synthetic_regression

DESIGN = range(1000)  # the draws on which choices may be made; those of a test lie beyond
DRAWS, EVERY, CALIBRATION_TRIALS = 16, 5, 20
STEP_SIZE = 1e-2
STEP_SIZES = (1e-3, 3e-3, STEP_SIZE, 3e-2, 1e-1)  # from which the competitors' best is chosen
REGIME = ("shape", "spread", "snr_db")


class Shape(NamedTuple):
    """N users, K steps, d parameters, and the batch; None for full gradients."""

    users: int
    steps: int
    dim: int = 10
    batch: int | None = 10

    def words(self, apart: str = ", ") -> str:
        """What of it is not the map's."""
        words = [f"N = {self.users}", f"K = {self.steps}"]
        words += [f"d = {self.dim}"] if self.dim != 10 else []
        words += ["full gradients"] if self.batch is None else []
        return apart.join(words)


@dataclasses.dataclass(frozen=True)
class Map:
    """Regimes: each of the shapes with each pair of spreads, of data and of models, at each SNR."""

    shapes: tuple[Shape, ...]
    spreads: tuple[tuple[float, float], ...]
    snr_db: tuple[float, ...]
    rounds: int

    @property
    def regimes(self) -> int:
        return len(self.shapes) * len(self.spreads) * len(self.snr_db)


_MAP = Map(
    tuple(Shape(users, steps) for users in (5, 20, 100) for steps in (1, 10)),
    ((0.0, 0.0), (0.1, 1.0), (0.1, 10.0), (1.0, 1.0)),
    (-10.0, 0.0, 10.0, 20.0, 30.0),
    rounds=60,
)
_OFF_MAP = Map(
    (Shape(10, 3), Shape(50, 20), Shape(30, 5, batch=None), Shape(10, 5, dim=30)),
    ((0.3, 3.0), (0.0, 10.0), (0.5, 0.1), (0.05, 0.3)),
    (-15.0, -5.0, 5.0, 15.0, 25.0, 40.0),
    rounds=80,
)
MAPS = {"wise": _MAP, "rivals": _MAP, "ablation": _MAP, "offmap": _OFF_MAP}


def draws(seed: int) -> list[int]:
    """The data draws of a seed's test."""
    first = DESIGN.stop + DRAWS * seed
    return list(range(first, first + DRAWS))


def baselines() -> dict[str, Algorithm]:
    """What WISE is compared with, at the same peak power."""
    local: dict[str, Any] = {"step_size": STEP_SIZE, "steps": 10, "batch": 10}
    return {
        "noisy FedAvg": noisy_fedavg(**local),
        "COTAF": cotaf(**local, precode=Online()),
        "BAAF": baaf(**local, precode=Online()),
        "COBAAF": cobaaf(**local, precode=Online()),
    }


def rivals() -> dict[str, dict[str, Algorithm]]:
    """Baselines that are given what WISE has, and COTAF with optimisers at the server."""
    some = {name: each for name, each in baselines().items() if name != "noisy FedAvg"}
    optimisers = {
        "FedAvgM": optax.sgd(0.1, momentum=0.9),
        "FedAdam": optax.adam(0.1, b2=0.99, eps=1e-3),
        "FedYogi": optax.yogi(0.1, b2=0.99, eps=1e-3),
        "FedAdagrad": optax.adagrad(0.3, eps=1e-3),
        "FedAdam, cosine": optax.adam(optax.cosine_decay_schedule(0.3, _MAP.rounds), b2=0.99),
        "FedAvg, cosine": optax.sgd(optax.cosine_decay_schedule(1.0, _MAP.rounds)),
    }
    local: dict[str, Any] = {"step_size": STEP_SIZE, "steps": 10, "batch": 10}
    return {
        "coded means": {
            f"{name}, coded means": each.replace(compress=Centred()) for name, each in some.items()
        },
        "mean power P": {
            f"{name}, mean power P": each.replace(precode=MeanPower())
            for name, each in some.items()
        },
        "server optimisers": {
            f"COTAF, {name}": cotaf(**local, precode=Online(), server=each)
            for name, each in optimisers.items()
        },
    }


def ours() -> dict[str, Algorithm]:
    """WISE at its one setting."""
    return {"WISE": wise(STEP_SIZE, steps=10, batch=10)}


def study(
    seed: int,
    trials: int,
    compared: dict[str, Algorithm],
    name: str,
    step_sizes: tuple[float, ...],
) -> Study:
    """The map of a name, of the algorithms that are compared, as any other study."""
    seed, trials = _validate.seed(seed), _validate.whole("trials", trials, 1)
    if draws(seed)[-1] >= 2**32:
        raise InputError(f"seed must be < {2**32 // DRAWS - DESIGN.stop}, got {seed}")
    return Study(
        compared,
        Channel(),
        synthetic_regression(jax.random.key(0), users=100, samples=100, dim=10),
        MAPS[name].rounds,
        trials,
        over=over(name, step_sizes, draws(seed)),
        key=seed,
        every=EVERY,
        calibration_trials=CALIBRATION_TRIALS,
        keep="mean",
        name=name,
    )


def over(name: str, step_sizes: tuple[float, ...], keys: list[int]) -> Grid:
    """The regimes of a map, on data of these keys."""
    regimes = MAPS[name]
    data, models = zip(*regimes.spreads, strict=True)
    return grid(
        dict(zip(Shape._fields, zip(*regimes.shapes, strict=True), strict=True)),
        {"data_spread": data, "model_spread": models},
        snr_db=regimes.snr_db,
        step_size=step_sizes,
        **{"task.key": keys},
    )


def job(name: str, seed: int, trials: int) -> StudyJob:
    """What the driver runs: the map of a name, against the baselines or all rivals."""
    every = {label: each for group in rivals().values() for label, each in group.items()}
    compared = ours() | (every if name == "rivals" else baselines())
    return StudyJob(study(seed, trials, compared, name, STEP_SIZES))


def labelled(dataset: Any) -> Any:
    """What a study of a map found, by the names of what is swept."""
    names = {"setting": "shape", "setting_2": "spread", "task.key": "draw", "evaluation": "round"}
    fields = [name for name in dataset.coords if name not in dataset.dims]
    mine = dataset.drop_vars([*fields, "round"]).drop_dims("round")
    return mine.rename(names)


def gaps(found: Any) -> Any:
    """Mean gaps [algorithm, …, step_size, draw, round], infinite where a trial diverged."""
    whole = found.used == found.trials
    return found.gap_mean.where(whole & np.isfinite(found.gap_mean), np.inf)


def ratios(found: Any, against: list[str], hindsight: bool) -> Any:
    """WISE's mean gap over that of the best of those it is against [shape, spread, snr_db, draw,
    round].

    In `hindsight` each of them has the step size that is best in this regime, on this draw and at
    this round, and at the last one the better of its last model and its weighted average.
    """
    each = gaps(found)
    mine = each.sel(algorithm="WISE", step_size=STEP_SIZE, drop=True)
    others = each.sel(algorithm=against)
    if not hindsight:
        return mine / others.sel(step_size=STEP_SIZE, drop=True).min("algorithm")
    average = found.average_gap_mean.sel(algorithm=against)
    average = average.where(np.isfinite(others.isel(round=-1)), np.inf)
    last = others["round"] == others["round"][-1]
    others = others.where(~last, np.minimum(others, average.broadcast_like(others)))
    return mine / others.min(["algorithm", "step_size"])
