"""Pictures hold what they should: curves, bands, labels, and marks where a band is cut."""

import jax
import numpy as np
import pytest

import jaxota as jo
from jaxota import plots, style
from jaxota.figures import FIGURES


@pytest.fixture(scope="module")
def history(task):
    return jo.simulate(jax.random.key(0), jo.fedavg(1e-2, 2, 2), jo.Channel(), task, 6, 3, every=2)


def _with(history, gap):
    return history.replace(scores=history.scores | {"gap": gap})


def test_curves_show_means_and_bands(history):
    figure = plots.curves({"one": history, "two": _with(history, 2 * history.gap)}, title="T")
    axes = figure.axes[0]
    lines = [line for line in axes.lines if not line.get_label().startswith("_")]
    assert [line.get_label() for line in lines] == ["one", "two"]
    np.testing.assert_array_equal(lines[0].get_xdata(), [2, 4, 6])
    np.testing.assert_allclose(lines[0].get_ydata(), np.mean(history.gap, 0), rtol=1e-5)
    assert len({line.get_color() for line in lines}) == 2
    assert axes.get_yscale() == "log" and len(axes.collections) == 2
    assert (
        "gap" in axes.get_ylabel() and "round" in axes.get_xlabel() and figure.get_suptitle() == "T"
    )


def test_bands_that_reach_zero_are_cut_visibly(history):
    gap = np.array([[1.0, 0.01, 1.0], [1.2, 3.0, 1.1], [0.9, 0.02, 1.2]])
    axes = plots.curves({"wide": _with(history, gap)}).axes[0]
    marks = axes.lines[1]
    np.testing.assert_array_equal(marks.get_xdata(), [4])
    assert marks.get_marker() == "v"
    bottom = axes.get_ylim()[0]
    assert 0 < bottom < 0.9 and (marks.get_ydata() == pytest.approx(bottom))
    path = axes.collections[0].get_paths()[0].vertices
    assert path[:, 1].min() == pytest.approx(bottom)


def test_panels_share_a_scale_and_a_legend(history):
    groups = {"A": {"x": history, "y": history}, "B": {"x": _with(history, 9 * history.gap)}}
    figure = plots.panels(groups, title="T")
    assert [axes.get_title() for axes in figure.axes] == ["A", "B"]
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["x", "y"]


def test_finals_show_the_last_score_against_a_value(history):
    runs = [history, _with(history, 2 * history.gap)]
    axes = plots.finals([0.0, 0.5], {"A": runs}, "gap", "error").axes[0]
    last = np.mean(history.gap[:, -1])
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [last, 2 * last], rtol=1e-5)
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), [0.0, 0.5])
    assert axes.get_xlabel() == "error" and axes.get_ylabel().startswith("final")


def test_diverged_trials_are_named_in_the_legend(history):
    gap = np.array(history.gap)
    gap[0, 1] = np.nan
    axes = plots.curves({"half": _with(history, gap)}).axes[0]
    assert axes.lines[0].get_label() == "half (1 of 3 diverged)"


def test_all_diverged_or_one_trial_still_draw(history, tmp_path):
    gap = np.full((3, 3), np.nan)
    one = jax.tree.map(lambda x: x[:1], history)
    plots.curves({"none": _with(history, gap), "one": one}).savefig(tmp_path / "x.png")
    plots.curves({"none": _with(history, gap)}).savefig(tmp_path / "y.png")


def test_any_score_and_what_every_round_gives_are_drawn(history):
    other = history.replace(scores=history.scores | {"top5": 3 * history.gap})
    axes = plots.curves({"one": other}, "top5").axes[0]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), 3 * np.mean(history.gap, 0), rtol=1e-5)
    assert axes.get_yscale() == "linear" and axes.get_ylabel() == "top5"
    assert plots.curves({"one": other}, "loss").axes[0].get_yscale() == "log"
    axes = plots.curves({"one": other}, "power").axes[0]
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), 1 + np.arange(6))


def test_unknown_metrics_are_refused(history):
    for metric in ("accuracy", "speed", "model", "settings"):
        with pytest.raises(jo.InputError, match="metric must be one that 'one' has"):
            plots.curves({"one": history}, metric)


@pytest.mark.parametrize("users", [4, 60])
def test_partition_shows_who_holds_how_much_of_which_label(users, tmp_path):
    task = jo.tasks.digits(jax.random.key(0), users, 20, jo.tasks.quantity_skew(1.0))
    figure = plots.partition(task, "T")
    axes = figure.axes[0]
    held = axes.images[0].get_array()
    assert held.shape == (10, users) and axes.get_title() == "T"
    np.testing.assert_array_equal(held.sum(0), task.counts)
    mine = np.asarray(task.data["labels"][0, : task.counts[0]])
    np.testing.assert_array_equal(held[:, 0], np.bincount(mine, minlength=10))
    numbers = [int(text.get_text()) for text in axes.texts]
    assert numbers == (list(held.ravel()) if users == 4 else [])
    figure.savefig(tmp_path / "partition.png")


def test_partition_needs_labels(task):
    with pytest.raises(jo.InputError, match="task must be one of classification"):
        plots.partition(task)


def _looks(figure):
    """Colour, dash and marker of each curve, by its label."""
    lines = [line for axes in figure.axes for line in axes.lines]
    return {
        line.get_label(): (line.get_color(), line._unscaled_dash_pattern, line.get_marker())
        for line in lines
        if not line.get_label().startswith("_")
    }


def test_an_algorithm_has_one_look_in_all_pictures(history):
    found = {}
    for experiment in FIGURES.values():
        runs = dict.fromkeys(experiment.algorithms, history)
        finals = {name: [history, history] for name in runs}
        for figure in (
            plots.curves(runs),
            plots.panels({"A": runs, "B": dict(reversed(runs.items()))}),
            plots.finals([0, 1], finals, "gap", "x"),
        ):
            for label, look in _looks(figure).items():
                assert found.setdefault(label, look) == look
    assert len(found) == len(set(found.values())) == 7
    alone = _looks(plots.curves({"SCAFFOLD": history, "WISE": history}))
    assert alone["SCAFFOLD"] == found["SCAFFOLD (noise-free)"]
    assert alone["WISE"] == found["WISE"]


def test_what_is_not_known_takes_the_looks_that_are_left():
    looks = style.looks(["mine", "COTAF", "other", "noisy_fedavg", "COTAF (online)", "COTAF, x"])
    assert looks["COTAF"] == style.looks(["COTAF"])["COTAF"]
    assert [looks[label].number for label in ("mine", "other")] == [2, 3]
    assert len(set(looks.values())) == 6
    shared = {looks[label].colour for label in ("COTAF", "COTAF (online)", "COTAF, x")}
    assert shared == {looks["COTAF"].colour}
    turned = style.looks(reversed(looks))
    assert all(turned[label] == looks[label] for label in ("COTAF", "noisy_fedavg"))
    many = style.looks(f"setting {n}" for n in range(40))
    assert [look.number for look in many.values()] == list(range(40))
    assert len({look[1:] for look in many.values()}) == 40


def test_a_legend_names_the_curves_of_all_panels(history):
    figure = plots.panels({"A": {"x": history}, "B": {"y": history, "x": history}})
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["x", "y"]
