"""Users in a cell: their law of distance, gains that follow it, and trials that redraw them."""

import numpy as np
import pytest

import jaxota as jo

MANY = 20000
RUN = {"rounds": 60, "trials": 20}
LOUD = jo.cotaf(1e-2, 1, 2, precode=jo.Online())


def test_users_are_uniform_in_the_ring():
    """The share of area within r is the share of users; directions are uniform."""
    cell = jo.cell(0, MANY, radius=100.0, nearest=20.0)
    distances, positions = np.asarray(cell.distances), np.asarray(cell.positions)
    assert distances.min() >= 20.0 and distances.max() <= 100.0 * (1 + 1e-6)
    for r in (30.0, 60.0, 90.0):
        share = (r**2 - 20.0**2) / (100.0**2 - 20.0**2)
        error = np.sqrt(share * (1 - share) / MANY)
        assert abs((distances < r).mean() - share) < 4 * error
    directions = positions / distances[:, None]
    assert (np.abs(directions.mean(0)) < 4 * np.sqrt(0.5 / MANY)).all()


def test_gains_follow_path_loss_and_shadowing():
    cell = jo.cell(1, MANY, radius=200.0, exponent=3.0, nearest=10.0)
    lost = 30.0 * np.log10(np.asarray(cell.distances) / 200.0)
    np.testing.assert_allclose(cell.snr_db(5.0), 5.0 - lost, atol=1e-3)
    nearer = cell.replace(reference=50.0)
    np.testing.assert_allclose(nearer.gains, np.asarray(cell.gains) / 4.0**3, rtol=1e-4)
    dark = cell.replace(shadowing_db=6.0)
    np.testing.assert_array_equal(dark.positions, cell.positions)
    shadow = 10 * np.log10(np.asarray(dark.gains) / np.asarray(cell.gains))
    assert abs(shadow.mean()) < 4 * 6 / np.sqrt(MANY)
    assert abs(shadow.std() - 6) < 4 * 6 / np.sqrt(2 * MANY)


def channel(gains):
    return jo.Channel(snr_db=0.0, fading=jo.rayleigh(threshold=1.0), gains=gains)


def test_a_cell_is_its_gains(task):
    cell = jo.cell(2, task.users, shadowing_db=4.0, reference=300.0)
    by_cell = jo.simulate(0, LOUD, channel(cell), task, **RUN, heard=True)
    by_gains = jo.simulate(0, LOUD, channel(cell.gains), task, **RUN, heard=True)
    np.testing.assert_array_equal(by_cell.heard, by_gains.heard)
    np.testing.assert_allclose(by_cell.gap, by_gains.gap, rtol=1e-4)


def test_users_are_heard_as_far_as_their_gains_reach(task):
    """Under Rayleigh fading a user of mean gain g is heard with probability exp(−h_min²/g)."""
    cell = jo.cell(2, task.users, reference=300.0)
    history = jo.simulate(0, LOUD, channel(cell), task, **RUN, heard=True)
    chance = np.exp(-1.0 / np.asarray(cell.gains))
    error = np.sqrt(chance * (1 - chance) / (60 * 20))
    assert (np.abs(history.heard.mean((0, 1)) - chance) < 4 * error + 1e-9).all()
    assert chance.min() < 0.6 < 0.9 < chance.max()


def test_trials_redraw_their_users(task):
    """Each trial has shares of its own; within a trial users stay where they are."""
    cell = jo.cell(2, task.users, reference=300.0, redraw=True)
    run = {"rounds": 60, "trials": 20, "heard": True}
    history = jo.simulate(0, LOUD, channel(cell), task, **run)
    spread = history.heard.mean(1).std(0)  # [user] over trials
    assert (spread > 2 * np.sqrt(0.25 / 60)).all()
    first = jo.simulate(0, LOUD, channel(cell), task, 40, 20, heard=True, keep_state=True)
    rest = jo.simulate(0, LOUD, channel(cell), task, 20, 20, heard=True, state=first.state)
    np.testing.assert_array_equal(rest.heard, history.heard[:, 40:])


def test_numbers_of_a_cell_sweep(task):
    cell = jo.cell(2, task.users, exponent=[2.0, 4.0])
    swept = jo.sweep(0, LOUD, channel(cell), task, 3, 2)
    assert list(swept.settings) == ["exponent"]
    alone = jo.simulate(0, LOUD, channel(cell.replace(exponent=4.0)), task, 3, 2)
    np.testing.assert_allclose(swept.gap[1], alone.gap, rtol=1e-4)


def test_the_picture_shows_every_user():
    cell = jo.cell(0, 30, shadowing_db=8.0)
    axes, bar = jo.plots.cell(cell, snr_db=10.0, title="T").axes
    users = axes.collections[0]
    np.testing.assert_allclose(users.get_offsets(), cell.positions, rtol=1e-6)
    np.testing.assert_allclose(users.get_array(), cell.snr_db(10.0), rtol=1e-5)
    assert "SNR" in bar.get_ylabel() and axes.get_title() == "T"
    with pytest.raises(jo.InputError, match=r"placed must be a jo\.cell"):
        jo.plots.cell(cell.gains)
    with pytest.raises(jo.InputError, match="placed must be one cell"):
        jo.plots.cell(cell, snr_db=[0.0] * 30)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"users": 3}, "channel.gains.users must be 4, as many as the task has, got 3"),
        ({"nearest": 600.0}, "channel.gains.nearest must be < radius"),
        ({"exponent": -1.0}, "channel.gains.exponent must be finite and ≥ 0, got -1"),
        ({"radius": 0.0}, "channel.gains.radius must be finite and > 0, got 0"),
        ({"redraw": 1}, "channel.gains.redraw must be False or True, got 1"),
    ],
)
def test_bad_cells_are_one_line(task, changes, line):
    cell = jo.cell(0, **{"users": task.users} | changes)
    with pytest.raises(jo.InputError) as error:
        jo.simulate(0, LOUD, channel(cell), task, 2, 2)
    assert str(error.value).startswith(line) and "\n" not in str(error.value)


def test_what_knows_no_cells_says_so(task):
    cell = jo.cell(0, task.users)
    with pytest.raises(jo.InputError, match=r"channel\.gains must be numbers, such as cell\.gains"):
        jo.exact(LOUD, channel(cell), task, 2)
    with pytest.raises(jo.InputError, match=r"channel\.gains need channel\.fading"):
        jo.simulate(0, LOUD, jo.Channel(gains=cell), task, 2, 2)
