"""Partitions: exact sizes, nothing held twice, and the shares of labels that they promise."""

import jax
import numpy as np
import pytest
from agree import assert_within
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxota as jo
from jaxota.tasks import partitions

LABELS = np.repeat(np.arange(10), 60)[np.random.default_rng(0).permutation(600)]
ALL = {
    "iid": jo.tasks.iid(),
    "label_skew": jo.tasks.label_skew(0.2),
    "dirichlet": jo.tasks.dirichlet(0.3),
    "shards": jo.tasks.shards(2),
    "quantity_skew": jo.tasks.quantity_skew(0.5),
}
each = pytest.mark.parametrize("partition", ALL.values(), ids=ALL)
examples = settings(max_examples=25, deadline=None, derandomize=True, database=None)
seeds = st.integers(0, 2**32 - 1)


@each
@examples
@given(seed=seeds, users=st.integers(1, 12), samples=st.integers(1, 25).map(lambda n: 2 * n))
def test_sizes_are_exact_and_no_sample_is_held_twice(partition, seed, users, samples):
    held = partition(jax.random.key(seed), LABELS, users, samples)
    whole = np.concatenate(held)
    assert len(held) == users and len(whole) == users * samples
    assert len(np.unique(whole)) == len(whole) and whole.min() >= 0 and whole.max() < len(LABELS)
    if partition is ALL["quantity_skew"]:
        assert min(map(len, held)) >= 1
    else:
        assert {len(indices) for indices in held} == {samples}


@each
def test_the_key_alone_decides(partition):
    held = [partition(jax.random.key(k), LABELS, 6, 40) for k in (1, 1, 2)]
    same, other = (all(map(np.array_equal, held[0], h)) for h in held[1:])
    assert same and not other


@each
def test_all_of_the_data_can_be_dealt_out(partition):
    held = partition(jax.random.key(0), LABELS, 10, 60)
    np.testing.assert_array_equal(np.sort(np.concatenate(held)), np.arange(600))


@examples
@given(seed=seeds, share=st.floats(0, 1), users=st.integers(1, 15))
def test_label_skew_sets_aside_a_share_of_one_label(seed, share, users):
    """At least the share is of the own label: exactly so much was set aside, more may be drawn."""
    held = jo.tasks.label_skew(share)(jax.random.key(seed), LABELS, users, 20)
    for user, indices in enumerate(held):
        assert (LABELS[indices] == user % 10).sum() >= round(share * 20)


def test_label_skew_leaves_the_rest_a_draw_of_all_labels():
    """The paper's 20 %: of 600 of 60,000 samples 120 are set aside, and of the rest a tenth is of
    the own label too, so that its share is about 28 %, whatever part of the samples one sees."""
    labels = np.tile(np.arange(10), 6000)
    own, first = [], []
    for seed in range(20):
        held = jo.tasks.label_skew(0.2)(jax.random.key(seed), labels, 10, 600)
        mine = np.stack([labels[h] == user for user, h in enumerate(held)])
        own.append(mine.mean(1))
        first.append(mine[:, :120].mean(1))  # what calibration sees
    left = (6000 - 120) / (60000 - 10 * 120)
    expected = 0.2 + 0.8 * left
    assert 0.279 < expected < 0.281
    assert_within(np.ravel(own), expected)
    assert_within(np.ravel(first), expected)


@pytest.mark.parametrize("alpha", [0.05, 0.5, 5.0])
def test_dirichlet_has_the_moments_of_its_law(alpha):
    """Of labels drawn in proportions p ~ Dir(α): E[p] = 1/C, E[p²] from its variance, and the share
    q of D draws has E[q²] = E[p²] + E[p(1 − p)]/D."""
    labels, users, samples = np.tile(np.arange(4), 40_000), 400, 30
    held = jo.tasks.dirichlet(alpha)(jax.random.key(0), labels, users, samples)
    shares = np.stack([np.bincount(labels[h], minlength=4) / samples for h in held])
    square = 1 / 16 + (1 / 4) * (3 / 4) / (4 * alpha + 1)
    assert_within(shares, 0.25)
    assert_within(shares**2, square + (0.25 - square) / samples)


def test_shards_hold_few_labels():
    held = jo.tasks.shards(2)(jax.random.key(0), LABELS, 10, 60)
    kinds = [len(np.unique(LABELS[indices])) for indices in held]
    assert max(kinds) == 2  # shards of 30 cut labels of 60 in half


def test_quantity_skew_has_the_moments_of_its_law():
    """(D_i − 1)/(total − N) is Dirichlet: mean 1/N, variance (1/N)(1 − 1/N)/(αN + 1)."""
    alpha, users, samples, shares = 2.0, 5, 200, []
    for seed in range(200):
        held = jo.tasks.quantity_skew(alpha)(jax.random.key(seed), np.zeros(1000), users, samples)
        shares.append([(len(h) - 1) / (users * (samples - 1)) for h in held])
    first = np.array(shares)[:, 0]  # users of one draw are not independent
    assert_within(first, 1 / users)
    assert_within((first - 1 / users) ** 2, (1 / users) * (1 - 1 / users) / (alpha * users + 1))


def test_quantity_skew_keeps_its_least_size():
    held = jo.tasks.quantity_skew(0.05, at_least=7)(jax.random.key(0), LABELS, 10, 50)
    sizes = sorted(map(len, held))
    assert sizes[0] >= 7 and sizes[-1] > 100 and sum(sizes) == 500


@pytest.mark.parametrize(
    "partition",
    [
        jo.tasks.iid(replace=True),
        jo.tasks.label_skew(0.5, replace=True),
        jo.tasks.dirichlet(0.1, replace=True),
    ],
)
def test_samples_are_held_twice_where_asked(partition):
    held = partition(jax.random.key(0), LABELS[:50], 4, 40)
    whole = np.concatenate(held)
    assert {len(h) for h in held} == {40} and len(np.unique(whole)) < len(whole)


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ([[0, 1], [2, -1]], r"partition must give user 1 indices in 0 … 599, got -1"),
        ([[0, 600], [2]], r"partition must give user 0 indices in 0 … 599, got 600"),
        ([[0, 1]], "partition must give indices for 2 users, got 1"),
        ([[0], []], r"partition must give user 1 whole numbers \[D_i ≥ 1\], got float64\[0\]"),
        ([[0.0], [1.0]], r"partition must give user 0 whole numbers"),
        (None, "partition must give a list of indices of"),
    ],
)
def test_a_partition_of_ones_own_is_looked_at(held, words):
    with pytest.raises(jo.InputError, match=words):
        partitions.apply(lambda *_: held, jax.random.key(0), LABELS, 2, 10)
    whole = [[0, 1], [2]]
    dealt = partitions.apply(lambda *_: whole, jax.random.key(0), LABELS, 2, 10)
    assert [each.tolist() for each in dealt] == whole


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p: p(jax.random.key(0), LABELS, 61, 10), "users · samples must be ≤ 600"),
        (lambda p: p(jax.random.key(0), LABELS, 0, 10), "users must be a whole number ≥ 1"),
        (lambda p: p(jax.random.key(0), LABELS, 2, 1.5), "samples must be a whole number ≥ 1"),
        (lambda p: p("0", LABELS, 2, 10), "key must be a random key"),
        (lambda p: p(jax.random.key(0), 5, 2, 10), "labels must have shape"),
    ],
)
@each
def test_bad_sizes_are_one_clear_line(partition, call, words):
    with pytest.raises(jo.InputError, match=words) as caught:
        call(partition)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: jo.tasks.label_skew(1.5), "share must be a number in 0 … 1, got 1.5"),
        (lambda: jo.tasks.label_skew("0.2"), "share must be a number in 0 … 1, got '0.2'"),
        (lambda: jo.tasks.dirichlet(0.0), "alpha must be a number in 1e-300 … 1e.300, got 0.0"),
        (
            lambda: jo.tasks.quantity_skew(np.inf),
            "alpha must be a number in 1e-300 … 1e.300, got inf",
        ),
        (lambda: jo.tasks.quantity_skew(1.0, 0), "at_least must be a whole number ≥ 1"),
        (lambda: jo.tasks.shards(0), "per_user must be a whole number ≥ 1"),
        (
            lambda: jo.tasks.shards(3)(jax.random.key(0), LABELS, 2, 10),
            "samples must be a multiple of per_user = 3",
        ),
        (
            lambda: jo.tasks.quantity_skew(1.0, 11)(jax.random.key(0), LABELS, 2, 10),
            "at_least must be ≤ samples = 10",
        ),
        (
            lambda: jo.tasks.label_skew(1.0)(jax.random.key(0), LABELS, 2, 61),
            "only 60 are left",
        ),
    ],
)
def test_bad_partitions_are_one_clear_line(call, words):
    with pytest.raises(jo.InputError, match=words):
        call()
