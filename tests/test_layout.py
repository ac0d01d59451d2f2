"""The layout of results and its chunks."""

import json
import math

import numpy as np
import pytest

from jaxota.study.layout import Layout, Variable

LAYOUT = Layout(
    {"algorithm": 2, "snr_db": 5, "steps": 3, "trial": 7, "round": 4},
    {"snr_db": 2, "steps": 1, "trial": 3},
    {
        "gap": Variable(("algorithm", "snr_db", "steps", "trial", "round")),
        "count": Variable(("snr_db", "steps", "trial"), "float64"),
    },
    {"snr_db": ("snr_db", [0, 5, 10, 15, 20]), "power": ("snr_db", [1.0, 2, 3, 4, 5])},
)


def test_chunks_cover_everything_once():
    """Those at the end are short, none is empty."""
    assert LAYOUT.counts == (3, 3, 3) and LAYOUT.count == 27
    seen = LAYOUT.empty()
    for number in range(LAYOUT.count):
        region = LAYOUT.region(number)
        for name, variable in LAYOUT.variables.items():
            place = LAYOUT.where(variable, region)
            assert np.isnan(seen[name][place]).all() and seen[name][place].size
            seen[name][place] = number
            assert seen[name][place].shape == LAYOUT.empty(region)[name].shape
    assert all(np.isfinite(values).all() for values in seen.values())
    assert {k: v.dtype for k, v in seen.items()} == {"gap": "float32", "count": "float64"}


def test_shapes_and_bytes():
    assert LAYOUT.shape(LAYOUT.variables["gap"]) == (2, 5, 3, 7, 4)
    assert LAYOUT.chunk_shape(LAYOUT.variables["gap"]) == (2, 2, 1, 3, 4)
    assert LAYOUT.bytes == 2 * 5 * 3 * 7 * 4 * 4 + 5 * 3 * 7 * 8


def test_a_chunk_keeps_its_name_when_dimensions_grow():
    """And says that it is of more, where it was short."""
    more = Layout(LAYOUT.sizes | {"snr_db": 8, "trial": 9}, LAYOUT.blocks, LAYOUT.variables)
    labels = {more.label(n): more.extent(n) for n in range(more.count)}
    assert len(labels) == more.count
    for number in range(LAYOUT.count):
        same = labels[LAYOUT.label(number)] == LAYOUT.extent(number)
        place = LAYOUT.index(number)
        assert same == (place["snr_db"] < 2 and place["trial"] < 2)
    assert LAYOUT.label(26) == "2.2.2" and LAYOUT.extent(26)["trial"] == [6, 7]


def test_a_block_of_trials_knows_its_trials():
    space = Layout({"block": 3}, {"block": 1}, {"n": Variable(("block",))}, {}, (7, 3))
    assert [space.extent(n)["block"] for n in range(3)] == [[0, 3], [3, 6], [6, 7]]


def test_a_layout_without_blocks_is_one_chunk():
    space = Layout({"x": 3}, {}, {"y": Variable(("x",))})
    assert space.count == 1 and space.label(0) == "0" and space.region(0) == {}
    assert space.empty(space.region(0))["y"].shape == (3,)


def test_json_gives_back_the_layout():
    again = Layout.from_json(json.loads(json.dumps(LAYOUT.as_json())))
    assert again.as_json() == LAYOUT.as_json() and again.variables == LAYOUT.variables
    assert again.counts == LAYOUT.counts and again.coords["power"][0] == "snr_db"
    behind = Layout({"block": 1}, {"block": 1}, {}, {}, (7, 3))
    assert Layout.from_json(json.loads(json.dumps(behind.as_json()))) == behind


def test_arrays_are_labelled():
    arrays = LAYOUT.empty()
    arrays["gap"][:] = np.arange(arrays["gap"].size).reshape(arrays["gap"].shape)
    data = LAYOUT.dataset(arrays)
    assert data.gap.dims == LAYOUT.variables["gap"].dims
    chosen = data.gap.sel(snr_db=15).isel(algorithm=1, steps=2, trial=6, round=3)
    assert float(chosen) == arrays["gap"][1, 3, 2, 6, 3]
    assert float(data["power"].sel(snr_db=15)) == 4.0


@pytest.mark.parametrize("number", [0, 13, 26])
def test_a_region_is_where_its_index_says(number):
    index, region = LAYOUT.index(number), LAYOUT.region(number)
    assert all(region[d].start == i * LAYOUT.blocks[d] for d, i in index.items())
    whole = math.prod(s.stop - s.start for s in region.values())
    assert whole == LAYOUT.empty(region)["count"].size
