"""The layout of results and its chunks."""

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


def test_chunks_know_their_trials():
    assert LAYOUT.label(26) == "2.2.2" and LAYOUT.trials_of(26) == (6, 7)
    assert [MEANS.trials_of(n) for n in range(3)] == [(0, 3), (3, 6), (6, 7)]


def test_json_gives_back_the_layout():
    for layout in (LAYOUT, MEANS):
        assert Layout.from_json(json.loads(json.dumps(layout.as_json()))) == layout


@pytest.mark.parametrize("number", [0, 13, 26])
def test_a_region_is_where_its_index_says(number):
    index, region = LAYOUT.index(number), LAYOUT.region(number)
    assert all(region[d].start == i * LAYOUT.blocks[d] for d, i in index.items())
    whole = math.prod(s.stop - s.start for s in region.values())
    assert whole == LAYOUT.empty(number)["count"].size


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"sizes": LAYOUT.sizes | {"trial": 0}}, "a size is 0"),
        ({"sizes": LAYOUT.sizes | {"trial": -7}}, "a size is -7"),
        ({"blocks": LAYOUT.blocks | {"trial": "3"}}, "a size is '3'"),
        ({"sizes": LAYOUT.sizes | {"snr_db": 10**12}}, "has 5 labels, not 1000000000000"),
        ({"dims": {"gap": ["trial", "user"]}}, "other dimensions"),
    ],
)
def test_layouts_that_do_not_fit_together_are_refused(changed, words):
    with pytest.raises(ValueError, match=words):
        Layout.from_json(LAYOUT.as_json() | changed)
