"""Axes, their labels and product, and how the command spells them."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxota as jo
from jaxota.cli.typed import parse_bytes, parse_grid, parse_shard, parse_values
from jaxota.study.grid import Grid


def test_fields_are_axes_in_the_order_they_are_given():
    grid = jo.grid(snr_db=[0, 10.0], users=(5, 6, 7))
    assert [(axis.name, len(axis)) for axis in grid.axes] == [("snr_db", 2), ("users", 3)]
    assert grid.axes[0].fields == {"snr_db": (0, 10.0)}


def test_grids_multiply():
    left, right = jo.grid(snr_db=[0, 10]), jo.grid(users=[5, 6])
    assert left * right == jo.grid(snr_db=[0, 10], users=[5, 6])
    assert Grid() * left == left * Grid() == left


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


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("-10:20:5", [-10, -5, 0, 5, 10, 15, 20]),  # the last included
        ("1:4", [1, 2, 3, 4]),
        ("0:10:4", [0, 4, 8]),  # where the steps meet it
        ("20:-10:-15", [20, 5, -10]),
        ("3:3", [3]),
        ("0:0.3:0.1", [0.0, 0.1, 0.2, 0.3]),
        ("0:1:0.05", [round(0.05 * n, 12) for n in range(21)]),
        ("-1:1:1.", [-1.0, 0.0, 1.0]),
        ("1e-3:3e-3:1e-3", [0.001, 0.002, 0.003]),
        (".5:-.5:-.5", [0.5, 0.0, -0.5]),
        (" 1 : 2 ", [1, 2]),
        ("1,2,3", [1, 2, 3]),
        ("5", [5]),
        ("1, 2.5,-3,+4,1e3", [1, 2.5, -3, 4, 1000.0]),
        ("inf,-inf", [math.inf, -math.inf]),
        ("None,5", [None, 5]),
        ("True,false", [True, False]),
        ("vector,symbol", ["vector", "symbol"]),
        ("'vector',\"symbol\"", ["vector", "symbol"]),
        ("Online(),Offline", [jo.Online(), jo.Offline()]),
        ("Constant(0.5),Constant(gain=2)", [jo.Constant(0.5), jo.Constant(gain=2)]),
        ("rayleigh(0.4),none", [jo.rayleigh(0.4), None]),
        ("rician(3.0, csi_error=0.1)", [jo.rician(3.0, csi_error=0.1)]),
        ("Channel(fading=rayleigh(0.3))", [jo.Channel(fading=jo.rayleigh(0.3))]),
    ],
)
def test_values_are_what_was_typed(text, values):
    assert repr(parse_values("x", text)) == repr(values)  # whole numbers stay so


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "--set x must be values such as 1,2,3 or first:last:step, got ''"),
        ("1,,2", "must be values such as 1,2,3"),
        ("(", "must be values such as 1,2,3"),
        ("a b", "must be values such as 1,2,3"),
        ("1)+(2", "must be values such as 1,2,3"),
        ("\0", "must be values such as 1,2,3"),
        ("1:", "--set x must be first:last:step in numbers, got '1:'"),
        (":5", "must be first:last:step in numbers"),
        ("1:2:3:4", "must be first:last:step in numbers"),
        ("a:b", "must be first:last:step in numbers"),
        ("1:5:0", "--set x must step from first to last, got '1:5:0', which is empty"),
        ("5:1", "which is empty"),
        ("1:5:-1", "which is empty"),
        ("0:1:1e-9", "--set x must hold at most 100000 values, got '0:1:1e-9'"),
        ("0:1e999", "--set x must hold at most 100000 values, got '0:1e999'"),
        ("0:1e308:1e-308", "must hold at most 100000 values"),
        ("1+1", "--set x must hold numbers, words or parts, got '1 + 1'"),
        ("[1,2]", "must hold numbers, words or parts, got '[1, 2]'"),
        ("-vector", "must hold numbers, words or parts"),
        ("1),(2", "must hold numbers, words or parts"),
        ("__import__('os')", "must hold numbers, words or parts"),
        ("exit()", "must hold numbers, words or parts"),
        ("jo.rayleigh()", "must hold numbers, words or parts"),
        ("Constant(x=1)", "--set x: Constant(x=1) cannot be made"),
        ("Constant(open)", "--set x: open() cannot be made"),
        ("cobaaf", "--set x: cobaaf() cannot be made"),  # that needs numbers
    ],
)
def test_malformed_values_are_one_clear_line(text, words):
    with pytest.raises(jo.InputError) as caught:
        parse_values("x", text)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_each_setting_is_an_axis():
    words = ["snr_db=0:10:5", " steps = 1,2 ", "channel.power=1,2"]
    grid = parse_grid(words)
    assert grid == jo.grid(snr_db=[0, 5, 10], steps=[1, 2], **{"channel.power": [1, 2]})
    assert parse_grid([]).axes == ()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["snr_db"], "--set must be NAME=VALUES, such as snr_db=-10:20:5, got 'snr_db'"),
        (["=1,2"], "--set must be NAME=VALUES"),
        ([""], "--set must be NAME=VALUES"),
        (["x=1,2", "x=3"], "x must be swept once, got it twice"),
        (["x=1,1"], "x must not hold a value twice, got 1 again"),
    ],
)
def test_malformed_settings_are_one_clear_line(words, told):
    with pytest.raises(jo.InputError) as caught:
        parse_grid(words)
    assert told in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1", 1), ("500M", 500 * 10**6), ("4G", 4 * 10**9), ("1.5k", 1500), ("2K", 2000),
        ("2GiB", 2 * 2**30), ("3 MB", 3 * 10**6), ("1Ki", 1024), ("1e3", 1000), ("7T", 7 * 10**12),
    ],
)  # fmt: skip
def test_bytes(text, count):
    assert parse_bytes("--memory", text) == count


@pytest.mark.parametrize("text", ["", "G", "-1G", "0", "0.1", "4X", "4 G B", "1e99", "nan", "4GG"])
def test_bad_bytes_are_one_clear_line(text):
    with pytest.raises(jo.InputError) as caught:
        parse_bytes("--memory", text)
    words = f"--memory must be a number of bytes such as 500M or 4G, got {text!r}"
    assert str(caught.value) == words


def test_shards():
    assert parse_shard("0/1") == (0, 1) and parse_shard(" 3/4 ") == (3, 4)


@pytest.mark.parametrize("text", ["", "1", "4/4", "5/4", "-1/4", "1/0", "0/0", "a/b", "1/2/3"])
def test_bad_shards_are_one_clear_line(text):
    with pytest.raises(jo.InputError) as caught:
        parse_shard(text)
    words = f"--shard must be I/N with I from 0 to N − 1, such as 0/4, got {text!r}"
    assert str(caught.value) == words


def test_parts_of_a_study_s_own_file_are_made_by_name():
    """Its functions and classes, but no private ones, and none where there is no file."""
    own = {"Own": jo.Stable, "_hidden": jo.Stable, "number": 3}
    one, two = parse_values("noise", "Own(1.5), Own", own | {"Own": lambda x=2: jo.Stable(x)})
    assert (one.alpha, two.alpha) == (1.5, 2)
    assert parse_values("noise", "number", own) == ["number"]
    for words in ("_hidden(1.5)", "Other(1.5)"):
        with pytest.raises(jo.InputError, match="must hold numbers, words or parts"):
            parse_values("noise", words, own)
    with pytest.raises(jo.InputError, match="must hold numbers, words or parts"):
        parse_values("noise", "Own(1.5)")
