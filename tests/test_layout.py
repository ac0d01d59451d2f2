"""The layout of results and its chunks."""

import dataclasses
import json
import math

import numpy as np
import pytest

from jaxota.study.layout import Layout

LAYOUT = Layout(
    {"algorithm": 2, "snr_db": 5, "steps": 3, "trial": 7, "round": 4},
    {"snr_db": 2, "steps": 1, "trial": 3},
    {
        "gap": ("algorithm", "snr_db", "steps", "trial", "round"),
        "count": ("snr_db", "steps", "trial"),
    },
    {"snr_db": ("snr_db", [0, 5, 10, 15, 20]), "power": ("snr_db", [1.0, 2, 3, 4, 5])},
    trials=7,
    trials_per_block=3,
)
MEANS = Layout({"block": 3}, {"block": 1}, {"n": ("block",)}, {}, 7, 3)


def test_chunks_cover_everything_once():
    """Those at the end are short, none is empty."""
    assert LAYOUT.counts == (3, 3, 3) and LAYOUT.count == 27
    seen = LAYOUT.empty()
    for number in range(LAYOUT.count):
        before = {name: np.isfinite(values).sum() for name, values in seen.items()}
        chunk = {name: np.full_like(v, number) for name, v in LAYOUT.empty(number).items()}
        LAYOUT.put(number, chunk, into=seen)
        for name, values in seen.items():
            assert chunk[name].size
            assert np.isfinite(values).sum() == before[name] + chunk[name].size
            assert (values == number).sum() == chunk[name].size
    assert all(np.isfinite(values).all() for values in seen.values())
    assert {v.dtype.name for v in seen.values()} == {"float32"}
    assert {v.dtype.name for v in MEANS.empty().values()} == {"float64"}


def test_shapes_and_bytes():
    assert LAYOUT.empty()["gap"].shape == (2, 5, 3, 7, 4)
    assert LAYOUT.empty(0)["gap"].shape == (2, 2, 1, 3, 4)
    assert LAYOUT.bytes == 2 * 5 * 3 * 7 * 4 * 4 + 5 * 3 * 7 * 4


def test_a_chunk_keeps_its_name_when_dimensions_grow():
    """And says that it is of more, where it was short."""
    sizes = LAYOUT.sizes | {"snr_db": 8, "trial": 9}
    more = dataclasses.replace(LAYOUT, sizes=sizes, trials=9)
    labels = {more.label(n): more.extent(n) for n in range(more.count)}
    assert len(labels) == more.count
    for number in range(LAYOUT.count):
        same = labels[LAYOUT.label(number)] == LAYOUT.extent(number)
        place = LAYOUT.index(number)
        assert same == (place["snr_db"] < 2 and place["trial"] < 2)
    assert LAYOUT.label(26) == "2.2.2" and LAYOUT.extent(26)["trial"] == [6, 7]


def test_a_block_of_trials_knows_its_trials():
    assert [MEANS.extent(n)["block"] for n in range(3)] == [[0, 3], [3, 6], [6, 7]]


def test_json_gives_back_the_layout():
    for layout in (LAYOUT, MEANS):
        assert Layout.from_json(json.loads(json.dumps(layout.as_json()))) == layout


@pytest.mark.parametrize("number", [0, 13, 26])
def test_a_region_is_where_its_index_says(number):
    index, region = LAYOUT.index(number), LAYOUT.region(number)
    assert all(region[d].start == i * LAYOUT.blocks[d] for d, i in index.items())
    whole = math.prod(s.stop - s.start for s in region.values())
    assert whole == LAYOUT.empty(number)["count"].size
