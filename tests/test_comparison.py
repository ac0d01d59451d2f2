"""Tables and rows say what is left out of a mean."""

import dataclasses
import io

import numpy as np
import pytest
from rich.console import Console

from jaxota import figures
from jaxota.cli import comparison
from jaxota.history import History


@pytest.fixture
def partly_diverged():
    """Four trials of two algorithms; the second of BAAF's left the finite numbers in round 2."""

    def history(gap):
        gap, power = np.float32(gap), np.full((4, 2), 0.5, np.float32)
        model = gap[:, -1:] * np.ones((1, 3), np.float32)
        heard = np.full((4, 2), 20.0, np.float32)
        scores = {"gap": gap, "loss": gap}
        run = {"power": power, "error": power, "participants": heard}
        return History(scores, **run, model=model, average=model)

    experiment = figures.EXPERIMENTS["fig1"]
    algorithms = {name: experiment.algorithms[name] for name in ("COTAF", "BAAF")}
    experiment = dataclasses.replace(experiment, algorithms=algorithms, trials=4, rounds=2)
    cotaf = history([[9.0, 1.0], [9.0, 2.0], [9.0, 3.0], [9.0, 5.0]])
    baaf = history([[9.0, 2.0], [1e30, np.inf], [9.0, 4.0], [9.0, 6.0]])
    histories = {("COTAF", ""): cotaf, ("BAAF", ""): baaf}
    return comparison.Comparison(experiment, 0, histories, set(), 1.0, 1.0)


def test_a_diverged_trial_is_counted_and_poisons_no_mean(partly_diverged):
    assert (
        "BAAF: 1 of 4 trials diverged, and are left out of the means." in partly_diverged.remarks()
    )
    shown = io.StringIO()
    Console(width=120, file=shown).print(partly_diverged.table())
    lines = [line for line in shown.getvalue().splitlines() if line.startswith("│")]
    rows = {line.split("│")[1].strip(): line for line in lines}
    assert "4.0 ± 5.0" in rows["BAAF"]  # the mean of 2, 4 and 6
    assert "+1.000 ± 0.000" in rows["BAAF"]  # paired with the same three trials of COTAF
    assert "2.8 ± 2.7" in rows["COTAF"]  # all four of its own


def test_the_csv_leaves_the_whole_trial_out(partly_diverged):
    header, *rows = partly_diverged.rows()
    rows = [dict(zip(header, row, strict=True)) for row in rows]
    gaps = {r["round"]: r for r in rows if r["algorithm"] == "BAAF" and r["metric"] == "gap"}
    assert float(gaps[1]["mean"]) == 9.0 and float(gaps[2]["mean"]) == 4.0
    assert [r["mean"] for r in rows if r["metric"] == "diverged"] == [0, 1]
