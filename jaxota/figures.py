"""The paper's five figures, and the same algorithms over fading and on a small network."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from jaxota._core import inputs
from jaxota.algorithms import Algorithm, baaf, cobaaf, cotaf, fedavg, noisy_fedavg, scaffold, wise
from jaxota.errors import InputError
from jaxota.stages.channel import Channel
from jaxota.stages.fading import rayleigh
from jaxota.study.grid import Axis, Grid
from jaxota.study.study import Study
from jaxota.tasks.images import Images
from jaxota.tasks.least_squares import synthetic_regression
from jaxota.tasks.partitions import iid, label_skew

ON_IMAGES = ("dataset", "data_dir", "init_scale")  # options of figures on images alone


@dataclasses.dataclass(frozen=True)
class Figure:
    """Algorithms that are compared on one task over one channel, or over several settings of it.

    Attributes:
        name: the name for `jaxota run`, and of the files.
        about: the title, with {dataset} for the name of the images.
        task: makes the task of a key.
        algorithms: by the labels of their curves.
        channels: by the labels of their settings; the only one has the label "".
        draw: options of `jo.plots.study`.
        rounds: R, communication rounds.
        trials: independent Monte Carlo runs.
        every: rounds from one score to the next.
        metric: the score of the table and the picture.
        reference: the algorithm that the others are compared with, trial by trial.
    """

    name: str
    about: str
    task: Callable[..., Any]
    algorithms: dict[str, Algorithm]
    channels: dict[str, Channel]
    draw: dict[str, Any] = dataclasses.field(default_factory=dict)
    rounds: int = 60
    trials: int = 100
    every: int = 1
    metric: str = "gap"
    reference: str = "COTAF"

    @property
    def title(self) -> str:
        return self.about.format(dataset=getattr(self.task, "title", ""))

    @property
    def on_images(self) -> bool:
        return isinstance(self.task, Images)

    @property
    def snr(self) -> str:
        """The SNR in words; all settings have the same."""
        channel = next(iter(self.channels.values()))
        return f"SNR {float(channel.snr_db):g} dB per {channel.snr_per}"

    def configured(self, **options: Any) -> "Figure":
        """Return the figure with other trials, rounds, SNR or, if it is on images, data.

        Args:
            **options: trials, rounds, snr_db, snr_per, dataset, data_dir or init_scale.
        """
        numbers, channel, images = (
            {k: v for k, v in options.items() if k in names}
            for names in (("trials", "rounds"), ("snr_db", "snr_per"), ON_IMAGES)
        )
        if images and not self.on_images:
            option = next(iter(images)).replace("_", "-")
            raise InputError(f"--{option} is for experiments on images, which {self.name} is not")
        task: Any = dataclasses.replace(self.task, **images) if images else self.task  # type: ignore
        channels = {label: c.replace(**channel) for label, c in self.channels.items()}
        return dataclasses.replace(self, channels=channels, task=task, **numbers)

    def study(self, seed: int = 0, **options: Any) -> Study:
        """Build the figure's study.

        The data come from a key of their own, so that they stay the same for other trials.

        Args:
            seed: seed of the data and of the trials.
            **options: as of `configured`.
        """
        if options:
            return self.configured(**options).study(seed)
        k_data, k_trials = jax.random.split(jax.random.key(inputs.seed(seed)))
        if not self.channels:
            raise InputError("channels must hold at least one channel, got none")
        labels, channels = tuple(self.channels), tuple(self.channels.values())
        setting = (Axis("setting", {"channel": channels}, labels),) if len(labels) > 1 else ()
        return Study(
            self.algorithms,
            channels[0],
            self.task(k_data),
            inputs.whole("rounds", self.rounds, 1),
            inputs.whole("trials", self.trials, 1, None),
            over=Grid(setting),
            key=k_trials,
            every=self.every,
            reference=self.reference,
            metric=self.metric,
            name=self.name,
        )


def _algorithms(labels: str, **local: Any) -> dict[str, Algorithm]:
    """Make the algorithms of these labels, which commas separate, with one local update."""
    makers: dict[str, Callable[..., Algorithm]] = {
        "noisy FedAvg": noisy_fedavg,
        "COTAF": cotaf,
        "BAAF": baaf,
        "COBAAF": cobaaf,
        "FedAvg (noise-free)": fedavg,
        "SCAFFOLD (noise-free)": scaffold,
        "WISE": wise,
    }
    return {label: makers[label](**local) for label in labels.split(", ")}


def _regression(
    name: str, users: int, steps: int, about: str = "", labels: str = "", **options: Any
) -> Figure:
    algorithms = _algorithms(labels or _IN_THE_PAPER, step_size=1e-2, steps=steps, batch=10)
    return Figure(
        name,
        about or f"synthetic regression, N = {users} users, K = {steps} local steps",
        lambda key: synthetic_regression(key, users, 100, 10, 0.1, 1.0),
        algorithms,
        **{"channels": {"": _AWGN}} | options,
    )


def _images(
    name: str, about: str, task: Images, step_size: float, labels: str, **options
) -> Figure:
    algorithms = _algorithms(labels, step_size=step_size, steps=5, batch=20)
    settings = {"rounds": 100, "trials": 20, "every": 5} | options
    return Figure(name, about, task, algorithms, {"": _AWGN}, metric="accuracy", **settings)


# Modules of flax, which is slow to import, are made where they are needed.
def _softmax_regression(classes: int) -> Any:
    from jaxota.tasks.models import SoftmaxRegression

    return SoftmaxRegression(classes)


def _small_cnn(classes: int) -> Any:
    from jaxota.tasks.models import CNN

    return CNN(classes, channels=(4, 8))


_AWGN = Channel(snr_db=10.0, snr_per="vector", power=1.0)
_FADING = {"no fading": _AWGN}
_FADING |= {f"threshold {t:g}": _AWGN.replace(fading=rayleigh(t, t)) for t in (0.1, 0.3, 0.6)}
_CSI_ERRORS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
_CSI = {f"CSI error {e:g}": _AWGN.replace(fading=rayleigh(csi_error=e)) for e in _CSI_ERRORS}
_IN_THE_PAPER = "noisy FedAvg, COTAF, BAAF, COBAAF, SCAFFOLD (noise-free)"
_OVER_FADING = "COTAF, BAAF, COBAAF, WISE"
_BALANCED = Images("mnist", _softmax_regression, iid())
_IMBALANCED = Images("mnist", _softmax_regression, label_skew(0.2))

_ALL = (
    _regression("fig1", users=20, steps=10),
    _regression("fig2", users=200, steps=10),
    _regression("fig3", users=20, steps=20),
    _regression(
        *("fading", 20, 10, "regression over Rayleigh fading, N = 20, K = 10", _OVER_FADING),
        channels=_FADING,
        draw={"by_algorithm": True},
    ),
    _regression(
        *("csi", 20, 10, "regression, Rayleigh fading, imperfect CSI, N = 20, K = 10"),
        _OVER_FADING,
        channels=_CSI,
        draw={"values": _CSI_ERRORS, "label": "variance of the channel estimate's error"},
    ),
    _images(
        *("fig4", "balanced {dataset}; softmax regression, N = 10, K = 5", _BALANCED, 1e-2),
        "noisy FedAvg, COTAF, BAAF, FedAvg (noise-free)",
    ),
    _images(
        *("fig5", "imbalanced {dataset}; softmax regression, N = 10, K = 5", _IMBALANCED, 1e-2),
        "COTAF, COBAAF, SCAFFOLD (noise-free)",
    ),
    _images(
        *("cnn", "balanced {dataset}; small CNN, N = 10, K = 5", Images("digits", _small_cnn), 0.2),
        "COTAF, BAAF, COBAAF, SCAFFOLD (noise-free)",
        rounds=40,
        trials=10,
        every=2,
    ),
)
FIGURES = {figure.name: figure for figure in _ALL}
