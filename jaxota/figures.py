"""The paper's figures and their extensions, as data."""

import functools
from typing import Any

import jaxota
from jaxota import tasks
from jaxota.algorithms import Algorithm, baaf, cobaaf, cotaf, fedavg, noisy_fedavg, scaffold, wise
from jaxota.cli.experiment import Experiment, Theory
from jaxota.stages.channel import Channel
from jaxota.stages.fading import rayleigh
from jaxota.tasks.images import Images


# What draws and what only studies need is slow to import: it is named where it is needed.
def _one_panel(comparison, title: str):
    histories = {algorithm: h for (algorithm, _), h in comparison.histories.items()}
    return jaxota.plots.curves(histories, comparison.experiment.metric, title)


def _panel_for_each_algorithm(comparison, title: str):
    panels: dict[str, Any] = {algorithm: {} for algorithm in comparison.experiment.algorithms}
    for (algorithm, setting), history in comparison.histories.items():
        panels[algorithm][setting] = history
    return jaxota.plots.panels(panels, comparison.experiment.metric, title)


def _against_csi_error(comparison, title: str):
    experiment = comparison.experiment
    errors = [float(channel.fading.csi_error) for channel in experiment.channels.values()]
    finals = {
        algorithm: [comparison.histories[algorithm, setting] for setting in experiment.channels]
        for algorithm in experiment.algorithms
    }
    label = "variance of the channel estimate's error"
    return jaxota.plots.finals(errors, finals, experiment.metric, label, title)


def _compared(steps: int) -> dict[str, Algorithm]:
    local: dict[str, Any] = {"step_size": 1e-2, "steps": steps, "batch": 10}
    return {
        "noisy FedAvg": noisy_fedavg(**local),
        "COTAF": cotaf(**local),
        "BAAF": baaf(**local),
        "COBAAF": cobaaf(**local),
        "SCAFFOLD (noise-free)": scaffold(**local),
        "WISE": wise(**local),
    }


def _some(algorithms: dict[str, Algorithm], *names: str) -> dict[str, Algorithm]:
    return {name: algorithms[name] for name in names}


def _on_images(step_size: float) -> dict[str, Algorithm]:
    local: dict[str, Any] = {"step_size": step_size, "steps": 5, "batch": 20}
    return {
        "noisy FedAvg": noisy_fedavg(**local),
        "COTAF": cotaf(**local),
        "BAAF": baaf(**local),
        "COBAAF": cobaaf(**local),
        "FedAvg (noise-free)": fedavg(**local),
        "SCAFFOLD (noise-free)": scaffold(**local),
    }


# So is flax, which modules are made of.
def _softmax_regression(classes: int):
    return tasks.SoftmaxRegression(classes)


def _small_cnn(classes: int):
    return tasks.CNN(classes, channels=(4, 8))


def _regression(users: int):
    return lambda key: tasks.synthetic_regression(key, users, 100, 10, 0.1, 1.0)


def _wise(name: str):
    from jaxota.experiments import wise, wise_report

    return functools.partial(wise.job, name), functools.partial(wise_report.Wise.of, name)


def _ablation():
    from jaxota.experiments import ablation

    return ablation.job, ablation.Ablation.of


def _images():
    from jaxota.experiments import wise_images

    return wise_images.job, wise_images.OnImages.of


_AWGN = Channel(snr_db=10.0, snr_per="vector", power=1.0)
_PAPERS = ("noisy FedAvg", "COTAF", "BAAF", "COBAAF", "SCAFFOLD (noise-free)")
_THRESHOLDS = (0.1, 0.3, 0.6)
_CSI_ERRORS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        *(
            Experiment(
                name,
                f"synthetic regression, N = {users} users, K = {steps} local steps",
                _regression(users),
                _some(_compared(steps), *_PAPERS),
                {"": _AWGN},
                _one_panel,
            )
            for name, users, steps in (("fig1", 20, 10), ("fig2", 200, 10), ("fig3", 20, 20))
        ),
        Experiment(
            "fading",
            "regression over Rayleigh fading, N = 20, K = 10",
            _regression(20),
            _some(_compared(10), "COTAF", "BAAF", "COBAAF", "WISE"),
            {"no fading": _AWGN}
            | {f"threshold {t:g}": _AWGN.replace(fading=rayleigh(t, t)) for t in _THRESHOLDS},
            _panel_for_each_algorithm,
        ),
        Experiment(
            "csi",
            "regression, Rayleigh fading, imperfect CSI, N = 20, K = 10",
            _regression(20),
            _some(_compared(10), "COTAF", "BAAF", "COBAAF", "WISE"),
            {f"CSI error {e:g}": _AWGN.replace(fading=rayleigh(csi_error=e)) for e in _CSI_ERRORS},
            _against_csi_error,
        ),
        *(
            Experiment(
                name,
                f"{kind} {{dataset}}; softmax regression, N = 10, K = 5",
                Images("mnist", _softmax_regression, partition),
                _some(_on_images(1e-2), *compared),
                {"": _AWGN},
                _one_panel,
                rounds=100,
                trials=20,
                every=5,
                metric="accuracy",
            )
            for name, kind, partition, compared in (
                (
                    *("fig4", "balanced", tasks.iid()),
                    ("noisy FedAvg", "COTAF", "BAAF", "FedAvg (noise-free)"),
                ),
                (
                    *("fig5", "imbalanced", tasks.label_skew(0.2)),
                    ("COTAF", "COBAAF", "SCAFFOLD (noise-free)"),
                ),
            )
        ),
        Experiment(
            "cnn",
            "balanced {dataset}; small CNN, N = 10, K = 5",
            Images("digits", _small_cnn),
            _some(_on_images(0.2), "COTAF", "BAAF", "COBAAF", "SCAFFOLD (noise-free)"),
            {"": _AWGN},
            _one_panel,
            rounds=40,
            trials=10,
            every=2,
            metric="accuracy",
        ),
    )
}

THEORY = {
    theory.name: theory
    for theory in (
        Theory(
            "wise",
            "WISE beside the best of noisy FedAvg, COTAF, BAAF and COBAAF in 120 regimes",
            functools.partial(_wise, "wise"),
            trials=8,
        ),
        Theory(
            "rivals",
            "WISE on that map beside baselines with coded means, more power, server optimisers",
            functools.partial(_wise, "rivals"),
            trials=8,
        ),
        Theory(
            "offmap",
            "WISE beside the baselines in 96 other regimes",
            functools.partial(_wise, "offmap"),
            trials=8,
        ),
        Theory(
            "ablation",
            "WISE without each of its ingredients, and with a wrong noise variance",
            _ablation,
            trials=8,
        ),
        Theory(
            "images",
            "WISE beside COTAF, BAAF and COBAAF on MNIST, or on digits where it is not to be had",
            _images,
            trials=10,
            images=Images("", _softmax_regression),
        ),
    )
}

FIGURES = EXPERIMENTS
