"""The paper's five figures, and the same algorithms over fading and on a small network."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax

from jaxota import tasks
from jaxota._core import inputs
from jaxota.algorithms import Algorithm, baaf, cobaaf, cotaf, fedavg, noisy_fedavg, scaffold, wise
from jaxota.errors import InputError
from jaxota.reports import Report, check_options, study_report
from jaxota.stages.channel import Channel
from jaxota.stages.fading import NoFading, rayleigh
from jaxota.study.grid import Grid, axis
from jaxota.study.study import Study
from jaxota.tasks.images import Images
from jaxota.tasks.least_squares import synthetic_regression
from jaxota.tasks.partitions import iid, label_skew


@dataclasses.dataclass(frozen=True)
class Figure:
    """Algorithms that are compared on one task, over one channel or over several laws of fading.

    Like an `Experiment` it has options, and `figure(run, **options)` returns a `Report`.

    Attributes:
        name: the name for `jaxota run`, and of the files.
        about: the title, with {dataset} for the name of the images.
        task: makes the task of a key; a description of `Images` adds its options.
        algorithms: by the labels of their curves.
        channel: the channel, or that of the first setting.
        fading: laws of fading by the labels of their settings; without any there is one setting.
        draw: options of `jo.plots.study`.
        rounds: R, communication rounds.
        trials: independent Monte Carlo runs.
        every: rounds from one score to the next.
        metric: the score of the table and the picture.
        reference: the algorithm that the others are compared with, trial by trial.
        takes: about how long it takes on two cores, compilation included.
    """

    name: str
    about: str
    task: Callable[..., Any]
    algorithms: dict[str, Algorithm]
    channel: Channel = Channel(snr_db=10.0, snr_per="vector", power=1.0)
    fading: dict[str, Any] = dataclasses.field(default_factory=dict)
    draw: dict[str, Any] = dataclasses.field(default_factory=dict)
    rounds: int = 60
    trials: int = 100
    every: int = 1
    metric: str = "gap"
    reference: str = "COTAF"
    takes: str = ""

    @property
    def title(self) -> str:
        """The title, with the name of the images that it has by default."""
        return self.about.format(dataset=getattr(self.task, "title", ""))

    @property
    def options(self) -> dict[str, Any]:
        """Names and defaults of the options of `study`."""
        options = {"seed": 0, "trials": self.trials, "rounds": self.rounds, "algorithms": None}
        options |= {name: getattr(self.channel, name) for name in ("snr_db", "snr_per")}
        if isinstance(self.task, Images):
            images = ("dataset", "data_dir", "init_scale")
            options |= {name: getattr(self.task, name) for name in images}
        return options

    def study(self, seed: int = 0, **options: Any) -> Study:
        """Build the figure's study.

        The data come from a key of their own, so that they stay the same for other trials.

        Args:
            seed: seed of the data and of the trials.
            **options: trials, rounds, snr_db, snr_per; `algorithms`, such as "COTAF, WISE"; for
                images dataset, data_dir, init_scale.
        """
        check_options(self, options)
        counts = {name: options.pop(name, getattr(self, name)) for name in ("trials", "rounds")}
        names = options.pop("algorithms", None)
        algorithms, reference = self.algorithms, self.reference
        if names is not None:
            algorithms = choose(self._known(), names)
            reference = reference if reference in algorithms else next(iter(algorithms))
        channel = {name: options.pop(name) for name in ("snr_db", "snr_per") if name in options}
        k_data, k_trials = jax.random.split(jax.random.key(inputs.seed(seed)))
        task, settings = self.task(k_data), Grid()
        if self.fading:
            settings = axis("setting", {"fading": [*self.fading.values()]}, [*self.fading])
        return Study(
            algorithms,
            self.channel.replace(**channel),
            dataclasses.replace(task, **options) if options else task,
            over=settings,
            key=k_trials,
            every=self.every,
            reference=reference,
            metric=self.metric,
            name=self.name,
            **counts,
        )

    def _known(self) -> dict[str, Algorithm]:
        """Return the figure's algorithms, and the others with the same local update."""
        local = next(iter(self.algorithms.values())).local
        fields = {name: getattr(local, name) for name in ("step_size", "steps", "batch")}
        others = {label: make(**fields) for label, make in _MAKERS.items()}
        return self.algorithms | {k: v for k, v in others.items() if k not in self.algorithms}

    def __call__(self, run: Callable[[Study], Any] = Study.run, **options: Any) -> Report:
        """Run the figure here and report it.

        Args:
            run: runs a study and returns its dataset.
            **options: those of `study`.
        """
        study = self.study(**options)
        title = self.about.format(dataset=getattr(study.task, "title", ""))
        seed = options.get("seed", 0)
        return study_report(run(study), title=title, seed=seed, draw=self.draw)


_MAKERS: dict[str, Callable[..., Algorithm]] = {
    "noisy FedAvg": noisy_fedavg,
    "COTAF": cotaf,
    "BAAF": baaf,
    "COBAAF": cobaaf,
    "FedAvg (noise-free)": fedavg,
    "SCAFFOLD (noise-free)": scaffold,
    "WISE": wise,
}


def _algorithms(labels: str, **local: Any) -> dict[str, Algorithm]:
    """Make the algorithms of these labels, which commas separate, with one local update."""
    return {label: _MAKERS[label](**local) for label in labels.split(", ")}


def choose(algorithms: Mapping[str, Algorithm], names: str) -> dict[str, Algorithm]:
    """Return the algorithms of these names, which commas separate; brackets need not be typed."""
    short = {label.split(" (")[0].lower(): label for label in algorithms}
    chosen = {}
    for name in (word.strip() for word in names.split(",")):
        label = name if name in algorithms else short.get(name.lower().replace("_", " "))
        if label is None:
            known = ", ".join(algorithms)
            raise InputError(f"--algorithms must be of {known}, with commas, got {name!r}")
        chosen[label] = algorithms[label]
    return chosen


def _regression(
    name: str, users: int, steps: int, about: str = "", labels: str = "", **options: Any
) -> Figure:
    algorithms = _algorithms(labels or _IN_THE_PAPER, step_size=1e-2, steps=steps, batch=10)
    return Figure(
        name,
        about or f"synthetic regression, N = {users} users, K = {steps} local steps",
        lambda key: synthetic_regression(key, users, 100, 10, 0.1, 1.0),
        algorithms,
        **options,
    )


def _images(
    name: str, about: str, task: Images, step_size: float, labels: str, **options
) -> Figure:
    algorithms = _algorithms(labels, step_size=step_size, steps=5, batch=20)
    settings = {"rounds": 100, "trials": 20, "every": 5} | options
    return Figure(name, about, task, algorithms, metric="accuracy", **settings)


# Modules of flax, which is slow to import, are made where they are needed.
def _softmax_regression(classes: int) -> Any:
    return tasks.SoftmaxRegression(classes)


def _small_cnn(classes: int) -> Any:
    return tasks.CNN(classes, channels=(4, 8))


_FADING: dict[str, Any] = {"no fading": NoFading()}
_FADING |= {f"threshold {t:g}": rayleigh(t, t) for t in (0.1, 0.3, 0.6)}
_CSI_ERRORS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
_CSI = {f"CSI error {error:g}": rayleigh(csi_error=error) for error in _CSI_ERRORS}
_IN_THE_PAPER = "noisy FedAvg, COTAF, BAAF, COBAAF, SCAFFOLD (noise-free)"
_OVER_FADING = "COTAF, BAAF, COBAAF, WISE"
_BALANCED = Images("mnist", _softmax_regression, iid())
_IMBALANCED = Images("mnist", _softmax_regression, label_skew(0.2))

_ALL = (
    _regression("fig1", users=20, steps=10, takes="10 s"),
    _regression("fig2", users=200, steps=10, takes="1 min"),
    _regression("fig3", users=20, steps=20, takes="15 s"),
    _regression(
        *("fading", 20, 10, "regression over Rayleigh fading, N = 20, K = 10", _OVER_FADING),
        fading=_FADING,
        draw={"by_algorithm": True},
        takes="1 min",
    ),
    _regression(
        *("csi", 20, 10, "regression, Rayleigh fading, imperfect CSI, N = 20, K = 10"),
        _OVER_FADING,
        channel=Channel(fading=rayleigh()),
        fading=_CSI,
        draw={"values": _CSI_ERRORS, "label": "variance of the channel estimate's error"},
        takes="1 min",
    ),
    _images(
        *("fig4", "balanced {dataset}; softmax regression, N = 10, K = 5", _BALANCED, 1e-2),
        "noisy FedAvg, COTAF, BAAF, FedAvg (noise-free)",
        takes="2 min",
    ),
    _images(
        *("fig5", "imbalanced {dataset}; softmax regression, N = 10, K = 5", _IMBALANCED, 1e-2),
        "COTAF, COBAAF, SCAFFOLD (noise-free)",
        takes="2 min",
    ),
    _images(
        *("cnn", "balanced {dataset}; small CNN, N = 10, K = 5", Images("digits", _small_cnn), 0.2),
        "COTAF, BAAF, COBAAF, SCAFFOLD (noise-free)",
        rounds=40,
        trials=10,
        every=2,
        takes="2 min",
    ),
)
FIGURES = {figure.name: figure for figure in _ALL}
