"""Ledgers: channel uses, energy and coded scalars; curves against them, times to a target."""

import jax
import numpy as np
import pytest

import jaxota as jo
from jaxota import plots, stats

KEY = jax.random.key(0)
LOCAL = {"step_size": 1e-2, "steps": 2, "batch": 2}
ALGORITHMS = {
    "FedAvg": jo.fedavg(**LOCAL),
    "COTAF": jo.cotaf(**LOCAL, precode=jo.Online()),
    "COBAAF": jo.cobaaf(**LOCAL, precode=jo.Online(), estimate=jo.JamesStein()),
}
CHANNEL = jo.Channel(power=2.0, control_power=0.5, fading=jo.rayleigh())


@pytest.fixture(scope="module")
def histories(task):
    run = {"rounds": 6, "trials": 3, "every": 2, "user_power": True}
    return {k: jo.simulate(KEY, a, CHANNEL, task, **run) for k, a in ALGORITHMS.items()}


def test_uses_are_the_symbols_of_all_blocks(histories, task):
    """d symbols for each block, also where nobody is heard; none over error-free links."""
    for name, blocks in (("FedAvg", 0), ("COTAF", 1), ("COBAAF", 2)):
        np.testing.assert_array_equal(histories[name].uses, np.full((3, 6), blocks * task.dim))


def test_energy_is_that_of_all_users_and_blocks(histories):
    """Σ_i ‖x_i‖² = P·Σ_i of the power ratios, each block with its own budget."""
    assert not np.any(histories["FedAvg"].energy)
    one, two = histories["COTAF"], histories["COBAAF"]
    np.testing.assert_allclose(one.energy, 2.0 * one.user_power.sum(-1), rtol=1e-5)
    both = 2.0 * two.user_power.sum(-1) + 0.5 * two.user_control_power.sum(-1)
    np.testing.assert_allclose(two.energy, both, rtol=1e-5)
    assert np.all(one.energy <= 2.0 * one.participants + 1e-4)  # the peak is P


def test_ledgers_add_up(histories):
    history = histories["COBAAF"]
    total = history.cumulative("energy")
    np.testing.assert_allclose(np.diff(total, axis=1, prepend=0.0), history.energy, rtol=1e-5)
    data = history.to_xarray()
    assert data.uses.dims == data.energy.dims == ("trial", "round")
    with pytest.raises(jo.InputError, match="name must be one such as uses, energy, reports"):
        history.cumulative("gap")


@pytest.mark.parametrize("ledger", ["uses", "energy"])
def test_curves_against_what_is_spent(histories, ledger):
    axes = plots.curves({"COBAAF": histories["COBAAF"]}, against=ledger).axes[0]
    expected = histories["COBAAF"].cumulative(ledger)[:, 1::2].mean(0)
    np.testing.assert_allclose(axes.lines[0].get_xdata(), expected)
    assert ledger in axes.get_xlabel()
    with pytest.raises(
        jo.InputError, match=f"against must be 'round' for 'FedAvg', .* no {ledger}"
    ):
        plots.curves(histories, against=ledger)
    with pytest.raises(jo.InputError, match="against must be 'round' or 'uses'"):
        plots.curves(histories, against="joules")


def test_time_to_a_target(histories):
    """The first evaluation at or below the target, its cost so far; inf where there is none."""
    gap = np.array([[3.0, 1.0, 2.0], [3.0, 3.0, 1.0], [3.0, 3.0, 3.0]])
    made = histories["COBAAF"].replace(scores={"gap": gap, "accuracy": -gap})
    np.testing.assert_array_equal(stats.time_to(made, 1.0), [4, 6, np.inf])
    np.testing.assert_array_equal(stats.time_to(made, -1.0, "accuracy"), [4, 6, np.inf])
    np.testing.assert_array_equal(stats.time_to(made, 2.5, rising=True), [2, 2, 2])
    uses = made.cumulative("uses")
    expected = [uses[0, 3], uses[1, 5], np.inf]
    np.testing.assert_array_equal(stats.time_to(made, 1.0, against="uses"), expected)
    diverged = made.replace(model=np.full((3, 2), np.nan))
    assert np.isinf(stats.time_to(diverged, 1.0)).all()


@pytest.mark.parametrize("keep", ["trials", "mean"])
def test_reports_tell_what_a_run_cost(task, keep):
    """The table's last columns, rows of the CSV at every scored round, and the data by round."""
    study = jo.Study(
        ALGORITHMS, CHANNEL, task, rounds=4, trials=3, every=2, keep=keep, name="costs"
    )
    dataset = study.run()
    report = jo.study_report(dataset)
    assert report.table[0][-2:] == ["channel uses", "energy"]
    assert [row[-2] for row in report.table[1:]] == ["0", f"{4 * task.dim}", f"{8 * task.dim}"]
    rows = report.csv.set_index(["algorithm", "metric", "round"])["mean"]
    energy = dataset.energy.mean("trial") if keep == "trials" else dataset.energy_mean
    for name in ALGORITHMS:
        expected = float(energy.sel(algorithm=name, round=slice(1, 2)).sum())
        np.testing.assert_allclose(rows[name, "energy", 2], expected, rtol=1e-5)
        assert rows[name, "reports", 4] == 4 * rows[name, "reports", 2] / 2
