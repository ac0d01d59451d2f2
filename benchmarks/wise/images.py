"""What `jaxota run images` runs and shows: WISE beside COTAF, BAAF and COBAAF on images."""

import dataclasses
from typing import Any

import jax
import matplotlib
import numpy as np

from jaxota import stats, style
from jaxota._core import inputs as _validate
from jaxota.algorithms import Algorithm, baaf, cobaaf, cotaf, fedavg, wise
from jaxota.cli.report import attributes
from jaxota.stages.channel import Channel
from jaxota.stages.precode import Online
from jaxota.study.executor import StudyJob
from jaxota.study.grid import grid
from jaxota.study.study import Study
from jaxota.tasks.images import Images
from jaxota.tasks.partitions import iid, label_skew

ROUNDS, EVERY, DEALS, CALIBRATION_TRIALS = 100, 5, 3, 10
STEP_SIZE, STEP_SIZES = 1e-2, (1e-2, 3e-2, 1e-1)  # WISE's, and what the others choose from
SNR_DB = (0.0, 10.0)  # per vector
REFERENCE = "FedAvg (noise-free)"


def algorithms() -> dict[str, Algorithm]:
    """WISE, what it is compared with at the same peak power, and what is free of noise."""
    local: dict[str, Any] = {"step_size": STEP_SIZE, "steps": 5, "batch": 20}
    return {
        "WISE": wise(**local),
        "COTAF": cotaf(**local, precode=Online()),
        "BAAF": baaf(**local, precode=Online()),
        "COBAAF": cobaaf(**local, precode=Online()),
        REFERENCE: fedavg(**local),
    }


def job(seed: int, trials: int, images: Images) -> StudyJob:
    """What the driver runs."""
    seed, trials = _validate.seed(seed), _validate.whole("trials", trials, 1)
    k_data, k_trials = jax.random.split(jax.random.key(seed))
    over = grid(
        partition={"label skew": label_skew(0.2), "iid": iid()},
        snr_db=SNR_DB,
        step_size=STEP_SIZES,
        **{"task.key": list(jax.random.split(k_data, DEALS))},
    )
    study = Study(
        algorithms(),
        Channel(),
        images(k_data),
        ROUNDS,
        trials,
        over=over,
        key=k_trials,
        every=EVERY,
        calibration_trials=CALIBRATION_TRIALS,
        metric="accuracy",
        name="images",
    )
    return StudyJob(study)


@dataclasses.dataclass(frozen=True)
class OnImages:
    """Accuracies [algorithm, partition, snr_db, step_size, deal, trial, round]."""

    name = "images"

    seed: int
    trials: int
    title: str
    accuracy: Any

    @classmethod
    def of(cls, seed: int, trials: int, dataset: Any, images: Images) -> "OnImages":
        """From what the job of this seed and so many trials found."""
        names = {"task.key": "deal", "evaluation": "round"}
        accuracy = dataset.accuracy.drop_vars("round", errors="ignore").rename(names)
        return cls(seed, trials, images.title, accuracy.load())

    def caption(self) -> str:
        return (
            f"images: accuracy of softmax regression on {self.title}, N = 10, K = 5, SNR per "
            f"vector, {ROUNDS} rounds, {DEALS} deals of the data, {self.trials} trials each, "
            f"seed {self.seed}"
        )

    def _of(self, algorithm: str, step_size: float, **place: Any) -> np.ndarray:
        """Accuracies [deal, trial, round]."""
        found = self.accuracy.sel(algorithm=algorithm, step_size=step_size, **place)
        return found.transpose("deal", "trial", "round").values.astype(np.float64)

    def _best(self, algorithm: str, **place: Any) -> float:
        """The step size of the best last accuracy."""
        last = {eta: self._of(algorithm, eta, **place)[..., -1].mean() for eta in STEP_SIZES}
        return max(last, key=lambda eta: np.nan_to_num(last[eta]))

    def places(self) -> list[dict[str, Any]]:
        """Where algorithms are compared."""
        partitions = self.accuracy.partition.values
        return [{"partition": str(p), "snr_db": x} for p in partitions for x in SNR_DB]

    def table(self):
        """A line for each place and algorithm."""
        from rich.table import Table

        grid = Table()
        for heading in ("data", "SNR", "algorithm"):
            grid.add_column(heading)
        for heading in (f"η = {STEP_SIZE:g}", "WISE ahead by", "best η", "then", "WISE ahead by"):
            grid.add_column(heading, justify="right")
        for place in self.places():
            for algorithm in self.accuracy.algorithm.values:
                same, best = STEP_SIZE, self._best(algorithm, **place)
                cells = [_told(self._of(algorithm, same, **place)), "–", f"{best:g}"]
                cells += [_told(self._of(algorithm, best, **place)), "–"]
                if algorithm not in ("WISE", REFERENCE):
                    cells[1] = self._lead(algorithm, same, **place)
                    cells[4] = self._lead(algorithm, best, **place)
                grid.add_row(place["partition"], f"{place['snr_db']:g} dB", algorithm, *cells)
            grid.add_section()
        return grid

    def _lead(self, algorithm: str, step_size: float, **place: Any) -> str:
        """How far WISE is ahead, trial by trial, and on how many deals beyond the interval."""
        mine, other = self._of("WISE", STEP_SIZE, **place), self._of(algorithm, step_size, **place)
        pairs = list(zip(mine[..., -1], other[..., -1], strict=True))
        ahead = sum(bool(stats.paired(a, b).low > 0) for a, b in pairs)
        every = stats.paired(mine[..., -1].ravel(), other[..., -1].ravel())
        lead = f"{float(every.mean):+.4f} ± {float(every.half_width):.4f}"
        return f"{lead} ({ahead} of {len(pairs)})"

    def remarks(self) -> list[str]:
        return [
            "± is a 95 % interval over all trials of all deals, differences are paired; in "
            "brackets, on how many deals WISE is ahead beyond the interval of their own trials.",
            f"WISE has η = {STEP_SIZE:g}; the others the same, or in hindsight the best of "
            f"{', '.join(f'{x:g}' for x in STEP_SIZES)}. Precoders are online, {REFERENCE} is over "
            "error-free links.",
        ]

    def figure(self):
        """Accuracy over the rounds at one step size, a panel for each place, with 95 % bands."""
        rounds, algorithms = self.accuracy["round"].values, self.accuracy.algorithm.values
        looks = style.looks(map(str, algorithms))
        with matplotlib.rc_context(style.rc_params()):
            figure, row = style.subplots(len(self.places()), 2.5)
            for axes, place in zip(row, self.places(), strict=True):
                for algorithm in algorithms:
                    values = self._of(algorithm, STEP_SIZE, **place)
                    band = stats.interval(values.reshape(-1, len(rounds)))
                    style.curve(axes, looks[str(algorithm)], str(algorithm), rounds, band, 0.0)
                style.label_axes(axes, "round", f"{place['partition']}, {place['snr_db']:g} dB")
                axes.set_ylabel("test accuracy" if axes is row[0] else "")
            title = f"{self.title}, η = {STEP_SIZE:g}, {DEALS} deals × {self.trials} trials"
            style.title_and_legend(figure, row, title)
        return figure

    def rows(self):
        """The rows of the CSV, header first: one for each curve and round."""
        yield [
            "partition",
            "snr_db",
            "algorithm",
            "step_size",
            "round",
            "mean",
            "ci_low",
            "ci_high",
        ]
        for place in self.places():
            for algorithm in self.accuracy.algorithm.values:
                for eta in STEP_SIZES:
                    values = self._of(algorithm, eta, **place)
                    band = stats.interval(values.reshape(-1, values.shape[-1]))
                    columns = self.accuracy["round"].values, band.mean, band.low, band.high
                    for r, *numbers in zip(*columns, strict=True):
                        told = [f"{x:.6g}" for x in numbers]
                        yield [*place.values(), algorithm, eta, int(r), *told]

    def dataset(self):
        import xarray  # slow to import, needed here alone

        told = attributes(self.name, self.seed, self.caption())
        return xarray.Dataset({"accuracy": self.accuracy}, attrs=told)


def _told(values: np.ndarray) -> str:
    last = stats.interval(values[..., -1].ravel())
    return f"{float(last.mean):.4f} ± {float(last.half_width):.4f}"
