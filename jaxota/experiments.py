"""The paper's figures and their extensions, as data."""

import dataclasses
from collections.abc import Callable

from jaxota import plots, tasks
from jaxota.algorithms import Algorithm, baaf, cobaaf, cotaf, noisy_fedavg, scaffold
from jaxota.channel import Channel
from jaxota.fading import rayleigh


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Algorithms that are compared on one task over one channel, or over several settings of it."""

    name: str
    title: str
    task: Callable  # key → task
    algorithms: dict[str, Algorithm]  # by the label of their curve
    channels: dict[str, Channel]  # by the label of their setting, "" if there is but one
    draw: Callable  # (results, title) → figure
    rounds: int = 60
    trials: int = 100
    metric: str = "gap"
    reference: str = "COTAF"  # what the others are compared with, trial by trial


def _one_panel(results, title: str):
    histories = {algorithm: h for (algorithm, _), h in results.histories.items()}
    return plots.curves(histories, results.experiment.metric, title)


def _panel_for_each_algorithm(results, title: str):
    panels = {algorithm: {} for algorithm in results.experiment.algorithms}
    for (algorithm, setting), history in results.histories.items():
        panels[algorithm][setting] = history
    return plots.panels(panels, results.experiment.metric, title)


def _against_csi_error(results, title: str):
    experiment = results.experiment
    errors = [float(channel.fading.csi_error) for channel in experiment.channels.values()]
    finals = {
        algorithm: [results.histories[algorithm, setting] for setting in experiment.channels]
        for algorithm in experiment.algorithms
    }
    label = "variance of the channel estimate's error"
    return plots.finals(errors, finals, experiment.metric, label, title)


def _compared(steps: int) -> dict[str, Algorithm]:
    local = {"step_size": 1e-2, "steps": steps, "batch": 10}
    return {
        "noisy FedAvg": noisy_fedavg(**local),
        "COTAF": cotaf(**local),
        "BAAF": baaf(**local),
        "COBAAF": cobaaf(**local),
        "SCAFFOLD (noise-free)": scaffold(**local),
    }


def _over_the_air(steps: int) -> dict[str, Algorithm]:
    return {name: _compared(steps)[name] for name in ("COTAF", "BAAF", "COBAAF")}


def _regression(users: int):
    return lambda key: tasks.synthetic_regression(key, users, 100, 10, 0.1, 1.0)


_AWGN = Channel(snr_db=10.0, snr_per="vector", power=1.0)
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
                _compared(steps),
                {"": _AWGN},
                _one_panel,
            )
            for name, users, steps in (("fig1", 20, 10), ("fig2", 200, 10), ("fig3", 20, 20))
        ),
        Experiment(
            "fading",
            "regression over Rayleigh fading, N = 20, K = 10",
            _regression(20),
            _over_the_air(10),
            {"no fading": _AWGN}
            | {f"threshold {t:g}": _AWGN.replace(fading=rayleigh(t, t)) for t in _THRESHOLDS},
            _panel_for_each_algorithm,
        ),
        Experiment(
            "csi",
            "regression, Rayleigh fading, imperfect CSI, N = 20, K = 10",
            _regression(20),
            _over_the_air(10),
            {f"CSI error {e:g}": _AWGN.replace(fading=rayleigh(csi_error=e)) for e in _CSI_ERRORS},
            _against_csi_error,
        ),
    )
}
