"""What is swept: axes, their labels, their product."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxota as jo
from jaxota.study.grid import Grid, points


def test_fields_are_axes_in_the_order_they_are_given():
    grid = jo.grid(snr_db=[0, 10.0], users=(5, 6, 7))
    assert [(axis.name, len(axis)) for axis in grid.axes] == [("snr_db", 2), ("users", 3)]
    assert grid.axes[0].fields == {"snr_db": (0, 10.0)}
    assert points([2, 3]) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


def test_grids_multiply():
    left, right = jo.grid(snr_db=[0, 10]), jo.grid(users=[5, 6])
    assert left * right == jo.grid(snr_db=[0, 10], users=[5, 6])
    assert Grid() * left == left * Grid() == left
    assert points([]) == [()]  # no axis is one setting


def test_fields_in_step_are_one_axis():
    grid = jo.grid({"snr_db": [0, 10], "power": [1, 2]}, {"users": [5, 6, 7]}, steps=[1, 2])
    assert [axis.name for axis in grid.axes] == ["setting", "setting_2", "steps"]
    first, second, _ = grid.axes
    assert first.fields == {"snr_db": (0, 10), "power": (1, 2)} and first.labels == (0, 1)
    assert second.labels == (0, 1, 2)
    assert first.coordinates == {"setting": (0, 1), "snr_db": (0, 10), "power": (1, 2)}
    parts = jo.grid({"fading": [None, jo.rayleigh()], "snr_db": [0, 10]}).axes[0]
    assert list(parts.coordinates) == ["setting", "snr_db"]  # parts are no coordinates


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([1, 2.5], (1, 2.5)),
        (np.arange(2), (0, 1)),
        (np.array([0.1, 0.7], np.float32), (0.1, 0.7)),  # as they were meant
        (jnp.array([0.1, 1e-7]), (0.1, 1e-7)),
        ([0.1 + 0.2, -0.0], (0.3, 0.0)),
        ([np.inf, 3], (np.inf, 3)),
        ([None, 2], ("None", 2)),
        ([True, False], ("True", "False")),
        (["vector", "symbol"], ("vector", "symbol")),
        ([jo.Online(), jo.Offline()], ("Online()", "Offline()")),
        ([jo.rician(3.0), jo.Constant(0.5)], ("Rician(k_factor=3)", "Constant(gain=0.5)")),
        ([jo.SGD(0.1, 2), jo.SGD(0.1, 2, 4)], ("SGD(step_size=0.1, steps=2)",
                                               "SGD(step_size=0.1, steps=2, batch=4)")),
        ({"no": None, "weak": jo.rayleigh()}, ("no", "weak")),
        ({1: 5}, ("1",)),
        ([np.ones(3), np.zeros(3)], (0, 1)),
        (np.eye(2), (0, 1)),
    ],
)  # fmt: skip
def test_labels_are_what_one_would_write(values, labels):
    (axis,) = jo.grid(x=values).axes
    assert axis.labels == labels
    assert [type(a) for a in axis.labels] == [type(b) for b in labels]
    assert len(axis.fields["x"]) == len(labels)


def test_random_keys_are_numbered():
    assert jo.grid(key=jax.random.split(jax.random.key(0), 2)).axes[0].labels == (0, 1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: jo.grid(x=[1, 2, 1]), "x must not hold a value twice, got 1 again"),
        (lambda: jo.grid(x=[0.1, np.float32(0.1)]), "x must not hold a value twice, got 0.1"),
        (lambda: jo.grid(x=[jo.Online(), jo.Online()]), "got 'Online()' again"),
        (lambda: jo.grid(x=[]), "x must hold at least one value, got none"),
        (lambda: jo.grid(x={}), "x must hold at least one value, got none"),
        (lambda: jo.grid(x=3.0), "x must be a list of values to sweep over, got 3.0"),
        (lambda: jo.grid(x="abc"), "x must be a list of values to sweep over, got 'abc'"),
        (lambda: jo.grid(x=np.float32(1)), "x must be a list of values"),
        (lambda: jo.grid(x=jnp.ones(())), "x must be a list of values"),
        (lambda: jo.grid(x=jo.Online()), "x must be a list of values"),
        (lambda: jo.grid(x=None), "x must be a list of values"),
        (lambda: jo.grid({"x": [1], "y": [1, 2]}), "fields in step must be of one length"),
        (lambda: jo.grid({}), "fields in step must be a dict of values by their names"),
        (lambda: jo.grid([1, 2]), "fields in step must be a dict of values by their names"),
        (lambda: jo.grid(x=[1]) * jo.grid(x=[2]), "x must be swept once, got it twice"),
        (lambda: jo.grid({"x": [1]}) * jo.grid({"y": [2]}), "setting must be swept once"),
    ],
)
def test_bad_grids_are_one_clear_line(make, words):
    with pytest.raises(jo.InputError) as caught:
        make()
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_stored_labels_find_their_places():
    grid = jo.grid({"power": [1, 2]}, snr_db=[-5, 0, 5, 10], fading={"a": None, "b": None})
    order = {"setting": [1, 0], "snr_db": [10, 0], "fading": ["b"]}
    assert [axis.positions(order[axis.name]) for axis in grid.axes] == [[1, 0], [3, 1], [1]]
    with pytest.raises(jo.InputError, match="snr_db holds 7 in the store, and not here"):
        grid.axes[1].positions([10, 7])
    (mixed,) = jo.grid(batch=[None, 2]).axes  # a store holds labels of one type
    assert mixed.positions(["2", "None"]) == [1, 0]
