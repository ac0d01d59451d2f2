"""A labelled space and its chunks."""

import json
import math

import numpy as np
import pytest

from jaxota.study.layout import Space, Variable

SPACE = Space(
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
    assert SPACE.counts == (3, 3, 3) and SPACE.count == 27
    seen = SPACE.empty()
    for number in range(SPACE.count):
        region = SPACE.region(number)
        for name, variable in SPACE.variables.items():
            place = SPACE.where(variable, region)
            assert np.isnan(seen[name][place]).all() and seen[name][place].size
            seen[name][place] = number
            assert seen[name][place].shape == SPACE.empty(region)[name].shape
    assert all(np.isfinite(values).all() for values in seen.values())
    assert {k: v.dtype for k, v in seen.items()} == {"gap": "float32", "count": "float64"}


def test_sizes():
    assert SPACE.shape(SPACE.variables["gap"]) == (2, 5, 3, 7, 4)
    assert SPACE.chunks(SPACE.variables["gap"]) == (2, 2, 1, 3, 4)
    assert SPACE.bytes == 2 * 5 * 3 * 7 * 4 * 4 + 5 * 3 * 7 * 8


def test_a_chunk_keeps_its_name_when_dimensions_grow():
    """And says that it is of more, where it was short."""
    more = Space(SPACE.sizes | {"snr_db": 8, "trial": 9}, SPACE.blocks, SPACE.variables)
    labels = {more.label(n): more.covers(n) for n in range(more.count)}
    assert len(labels) == more.count
    for number in range(SPACE.count):
        same = labels[SPACE.label(number)] == SPACE.covers(number)
        place = SPACE.index(number)
        assert same == (place["snr_db"] < 2 and place["trial"] < 2)
    assert SPACE.label(26) == "2.2.2" and SPACE.covers(26)["trial"] == [6, 7]


def test_blocks_of_trials_say_which_they_are_of():
    space = Space({"block": 3}, {"block": 1}, {"n": Variable(("block",))}, {}, {"block": (7, 3)})
    assert [space.covers(n)["block"] for n in range(3)] == [[0, 3], [3, 6], [6, 7]]


def test_what_is_not_cut_is_one_chunk():
    space = Space({"x": 3}, {}, {"y": Variable(("x",))})
    assert space.count == 1 and space.label(0) == "0" and space.region(0) == {}
    assert space.empty(space.region(0))["y"].shape == (3,)


def test_words_give_back_the_space():
    again = Space.from_json(json.loads(json.dumps(SPACE.as_json())))
    assert again.as_json() == SPACE.as_json() and again.variables == SPACE.variables
    assert again.counts == SPACE.counts and again.coords["power"][0] == "snr_db"
    behind = Space({"block": 1}, {"block": 1}, {}, {}, {"block": (7, 3)})
    assert Space.from_json(json.loads(json.dumps(behind.as_json()))) == behind


def test_arrays_are_labelled():
    arrays = SPACE.empty()
    arrays["gap"][:] = np.arange(arrays["gap"].size).reshape(arrays["gap"].shape)
    data = SPACE.dataset(arrays)
    assert data.gap.dims == SPACE.variables["gap"].dims
    chosen = data.gap.sel(snr_db=15).isel(algorithm=1, steps=2, trial=6, round=3)
    assert float(chosen) == arrays["gap"][1, 3, 2, 6, 3]
    assert float(data["power"].sel(snr_db=15)) == 4.0


@pytest.mark.parametrize("number", [0, 13, 26])
def test_a_region_is_where_its_index_says(number):
    index, region = SPACE.index(number), SPACE.region(number)
    assert all(region[d].start == i * SPACE.blocks[d] for d, i in index.items())
    whole = math.prod(s.stop - s.start for s in region.values())
    assert whole == SPACE.empty(region)["count"].size
