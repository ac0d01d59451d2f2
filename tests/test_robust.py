"""Liars, and the median of groups against them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_coarse import linear, steps

import jaxota as jo

KEY = jax.random.key(0)
SLOPES = np.random.default_rng(5).standard_normal((9, 4))


def received(part, values, heard, side):
    """The median of groups, as the server decodes it without noise."""
    link = jo.Link(*(jnp.float32(heard),) * 3, jnp.float32(1.0))
    sent, _ = part.encode(jnp.float32(values), None, side)
    return part.decode(link.mean(sent), jnp.float32(0.0), link, side, values.shape[1])[0]


def test_the_median_of_groups_matches_numpy():
    """Groups of equal size, silent users, and groups that are silent as a whole."""
    part, rng = jo.GroupMedian(4), np.random.default_rng(0)
    for n in range(8):
        side, values = jo.SideInfo(jax.random.key(n)), rng.standard_normal((9, 3))
        own = np.asarray(part.membership(side, 9)).astype(bool)
        assert (own.sum(1) == 1).all() and set(own.sum(0)) == {2, 3}
        heard = rng.random(9) < 0.4
        means = [values[own[:, g] & heard].mean(0) for g in range(4) if (own[:, g] & heard).any()]
        expected = np.median(means, 0) if means else np.zeros(3)
        np.testing.assert_allclose(received(part, values, heard, side), expected, atol=1e-5)
    assert len({str(part.membership(jo.SideInfo(jax.random.key(n)), 9)) for n in range(4)}) == 4


def test_few_liars_cannot_move_the_median_beyond_honest_groups():
    """With lies of any size: in 2 of 5 groups within the honest averages, in 3 anywhere."""
    part, side = jo.GroupMedian(5), jo.SideInfo(KEY)
    values, group = np.random.default_rng(1).standard_normal((10, 6)), None
    group = np.asarray(part.membership(side, 10)).argmax(1)
    for liars, holds in ((2, True), (3, False)):
        lying = values.copy()
        for g in range(liars):
            lying[np.flatnonzero(group == g)[0]] = 1e4
        found = np.asarray(received(part, lying, np.ones(10), side))
        honest = np.stack([values[group == g].mean(0) for g in range(liars, 5)])
        inside = (honest.min(0) - 1e-3 <= found) & (found <= honest.max(0) + 1e-3)
        assert inside.all() if holds else not inside.any()


@pytest.mark.slow
def test_liars_in_a_run():
    """The plain average follows them, the median does not; one group, no liars: no change."""
    run = functools.partial(jo.simulate, KEY, task=linear(SLOPES), rounds=3, trials=4)
    rule = functools.partial(jo.cotaf, 0.1, 1, precode=jo.Online())
    quiet, loud = jo.Channel(snr_db=np.inf), jo.Channel(snr_db=3.0)
    lying = run(rule(compress=jo.Liars(2, -3.0)), quiet)
    factors = np.where(np.arange(9) < 2, -3.0, 1.0)
    expected = -0.1 * (factors[:, None] * SLOPES).mean(0)
    moved = steps(lying)
    np.testing.assert_allclose(moved, np.broadcast_to(expected, moved.shape), atol=1e-5)
    true = -0.1 * SLOPES.mean(0)
    np.testing.assert_allclose(lying.error, ((expected - true) ** 2).sum(), rtol=1e-3)
    robust = run(rule(compress=jo.Liars(2, -1e3, jo.GroupMedian(5))), quiet)
    assert (robust.uses == 20).all() and np.abs(steps(robust)).max() < 0.1 * np.abs(SLOPES).max()
    plain = run(rule(), loud)
    for same in (jo.Liars(0), jo.GroupMedian(1)):
        found = run(rule(compress=same), loud)
        np.testing.assert_allclose(found.model, plain.model, atol=1e-5)
        np.testing.assert_allclose(found.deviation, plain.deviation, rtol=1e-5)
    with pytest.raises(jo.InputError, match="groups must be at most 9, the users, got 10"):
        run(rule(compress=jo.GroupMedian(10)), loud)
