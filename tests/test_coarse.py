"""Compressors that send fewer or coarser numbers: top-k, votes, projections and their recovery."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agree import assert_within
from scipy import stats

import jaxota as jo
from jaxota.stages.channel import superpose
from jaxota.stages.coarse import message_passing, projection

KEY = jax.random.key(0)
LINK = jo.Link(*(jnp.ones(3),) * 3, jnp.float32(1.0))


def linear(slopes):
    """A task whose gradients are `slopes` [user, d] wherever the model is: Δ_i = −Kη·slope_i."""

    def loss(model, batch):
        return (batch * model[None]).sum(-1)

    def coordinates(model):
        return {f"x{n:03}": x for n, x in enumerate(model)}  # in the order of their names

    dim = np.shape(slopes)[1]
    return jo.tasks.empirical(
        lambda key: jnp.zeros(dim), loss, np.asarray(slopes)[:, None], coordinates
    )


def steps(history):
    """What each round added to the model [trial, round, d]."""
    path = [v for k, v in history.scores.items() if k != "loss"]
    return np.diff(np.stack(path, -1), axis=1, prepend=0.0)


# Top-k


@pytest.mark.parametrize("share", [0.01, 0.3, 0.5])
def test_top_k_loses_nothing_over_time(share):
    """Σ sent + memory = Σ updates, to rounding, whoever is heard; the k largest, and no more."""
    rng, users, dim = np.random.default_rng(2), 3, 10
    part, k = jo.TopK(jnp.float32(share)), max(1, round(share * dim))
    memory, sent, updates = part.start(users, dim), 0.0, 0.0
    for _ in range(20):
        values = jnp.float32(rng.standard_normal((users, dim)))
        heard = jnp.float32(rng.integers(0, 2, users))
        total = np.abs(values + memory)
        encoded, after = part.encode(values, memory, jo.SideInfo())
        chosen = np.asarray(encoded != 0)
        assert (chosen.sum(1) == k).all()
        assert (np.where(chosen, total, np.inf).min(1) >= np.where(chosen, 0, total).max(1)).all()
        memory = part.remember(memory, after, heard)
        sent, updates = sent + heard[:, None] * encoded, updates + values
    np.testing.assert_allclose(sent + memory, updates, atol=1e-5)
    equal, _ = part.encode(jnp.ones((users, dim)), part.start(users, dim), jo.SideInfo())
    assert (np.asarray(equal).sum(1) == k).all()


@pytest.mark.slow
def test_top_k_in_a_run():
    """At times not heard, against a loop in NumPy; and k = d is no compression."""
    slope, rounds = np.array([[2.9, -1.13, 0.57, 1.97]]), 15
    channel = jo.Channel(snr_db=np.inf, fading=jo.rayleigh(threshold=0.8))
    task, plain = linear(slope), jo.cotaf(0.1, 1, precode=jo.Online())
    run = functools.partial(jo.sweep, KEY, task=task, rounds=rounds, trials=3)
    history = run(plain.replace(compress=jo.TopK([0.25, 1.0])), channel)
    memory, first = np.zeros((3, 4)), jax.tree.map(lambda x: x[0], history.scores)
    first = steps(history.replace(scores=first))
    for r in range(rounds):
        total = memory - 0.1 * slope
        largest = np.abs(total) == np.abs(total).max(1, keepdims=True)
        heard = np.asarray(history.participants)[0, :, r : r + 1]
        memory = total - heard * largest * total
        np.testing.assert_allclose(first[:, r], heard * largest * total, atol=1e-5)
    assert 0 < np.mean(history.participants) < 1
    assert (history.uses == 4).all()
    noisy = run(plain.replace(compress=jo.TopK([0.25, 1.0])), jo.Channel(snr_db=5.0))
    whole = jo.simulate(KEY, plain, jo.Channel(snr_db=5.0), task, rounds=rounds, trials=3)
    np.testing.assert_allclose(noisy.model[1], whole.model, atol=1e-5)
    assert not np.allclose(noisy.model[0], whole.model, rtol=0.01)


# Votes


@pytest.mark.slow
def test_one_bit_aggregation_is_a_majority_vote():
    """Without noise the majority; with it wrong as often as Q(|s|·√ρ) says, ρ = P/(d·sw2)."""
    slopes = np.where(np.arange(5)[:, None] < np.array([5, 4, 3, 1]), 1.0, -1.0)  # [user, d]
    slopes[:, 0] *= np.arange(1, 6)  # a vote does not weigh more for a larger number
    votes, snr_db = np.sign(slopes).sum(0), np.array([np.inf, -1.0, -10.0])  # 5, 3, 1, −3
    algorithm = jo.cotaf(0.1, 1, precode=jo.Online(), compress=jo.OneBit(0.3))
    history = jo.sweep(KEY, algorithm, jo.Channel(snr_db), linear(slopes), rounds=10, trials=400)
    moved = np.stack([v for k, v in history.scores.items() if k != "loss"], -1)
    moved = np.diff(moved, axis=2, prepend=0.0)
    np.testing.assert_allclose(np.abs(moved), 0.3, rtol=1e-4)
    wrong = np.sign(moved) != -np.sign(votes)  # [setting, trial, round, d]
    assert not wrong[0].any()
    for n, snr in enumerate(snr_db[1:], 1):
        ratio = 10 ** (snr / 10) / 4
        assert_within(wrong[n].mean(1), stats.norm.sf(np.abs(votes) * np.sqrt(ratio)))
    np.testing.assert_allclose(history.power, 1.0, rtol=1e-5)
    assert history.error is None
    with pytest.raises(jo.InputError, match="with OneBit, which leaves no white noise"):
        jo.simulate(KEY, algorithm.replace(estimate=jo.MMSE()), jo.Channel(), linear(slopes), 1, 1)


def test_zeros_cast_no_vote():
    part = jo.OneBit(jnp.float32(0.5))
    votes, _ = part.encode(jnp.array([[0.0, -2.0], [0.0, 1e-9]]), None, jo.SideInfo())
    np.testing.assert_array_equal(votes, [[0, -1], [0, 1]])
    step, _ = part.decode(votes.mean(0), jnp.float32(0.0), LINK, jo.SideInfo(), 2)
    np.testing.assert_array_equal(step, [0, 0])


# Random directions


def test_directions_are_unbiased():
    """E x̂ = x and E‖x̂‖² = ‖x‖²(1 + (d + 1)/count), over fresh directions."""
    part, x = jo.Directions(4), jnp.arange(1.0, 7.0)[None]

    def estimate(key):
        side = jo.SideInfo(key)
        sent, _ = part.encode(x, None, side)
        return part.decode(sent[0], jnp.float32(0.0), LINK, side, 6)[0]

    found = np.asarray(jax.jit(jax.vmap(estimate))(jax.random.split(KEY, 20_000)), np.float64)
    assert_within(found, x[0])
    assert_within((found**2).sum(1), float((x**2).sum()) * (1 + 7 / 4))


# Projections


SIDE = jo.SideInfo(jax.random.key(7))


def test_every_user_fills_its_power_and_weighs_by_it():
    """‖x_i‖² = P; the server receives Σ√α_i·(A g_i, scale)/Σ√α_i, in NumPy."""
    part = jo.Projected(6, jnp.float32(0.4), jnp.float32(0.5))
    values = (
        jnp.float32(np.random.default_rng(0).standard_normal((3, 10))) * jnp.arange(1, 4)[:, None]
    )
    sent, memory = part.encode(values, part.start(3, 10), SIDE)
    matrix = np.asarray(projection(SIDE, 5, 10), np.float64)
    sparse = np.where(np.argsort(np.argsort(-np.abs(values), 1), 1) < 4, values, 0.0)
    np.testing.assert_allclose(sent[:, :5], sparse @ matrix.T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sent[:, 5], 0.5)
    rest = part.remember(None, memory, jnp.array([1.0, 0.0, 1.0]))
    np.testing.assert_allclose(rest, values - sparse * np.array([1, 0, 1])[:, None], atol=1e-6)
    energies = (sent**2).sum(1)
    block = jo.Block(sent, values, jnp.zeros(10), 2.0, jnp.float32(1.0), None, energies)
    energy = jo.FullPower().energy(block)
    received, _, power = superpose(KEY, block, energy, None, LINK)
    np.testing.assert_allclose(power, 1.0, rtol=1e-6)
    root = 1 / np.sqrt(energies)
    np.testing.assert_allclose(received, (root[:, None] * sent).sum(0) / root.sum(), rtol=1e-5)
    # Where norms agree it is the plain mean.
    equal = block.replace(values=sent / jnp.sqrt(energies)[:, None], energies=jnp.ones(3))
    received, _, _ = superpose(KEY, equal, jo.FullPower().energy(equal), None, LINK)
    np.testing.assert_allclose(received, np.asarray(equal.values).mean(0), rtol=1e-5, atol=1e-6)
    silent = block.replace(energies=energies.at[1].set(0.0))  # has no weight
    received, _, power = superpose(KEY, silent, jo.FullPower().energy(silent), None, LINK)
    others = np.delete(np.asarray(root), 1)
    expected = (others[:, None] * np.delete(sent, 1, 0)).sum(0) / others.sum()
    np.testing.assert_allclose(received, expected * 2 / 3 * 3 / 2, rtol=1e-5)
    np.testing.assert_allclose(power, [1, 0, 1])


def _amp(received, matrix, threshold, iterations):
    """The same in NumPy, the models of all iterations."""
    x, residual, models = np.zeros(matrix.shape[1]), received, []
    for _ in range(iterations):
        seen = x + matrix.T @ residual
        level = threshold * np.sqrt(np.mean(residual**2))
        x = np.sign(seen) * np.maximum(np.abs(seen) - level, 0)
        residual = received - matrix @ x + residual * np.count_nonzero(x) / len(received)
        models.append(x)
    return np.array(models)


def _state_evolution(share, ratio, noise, threshold, iterations):
    """Mean squared error of each iteration for x of N(0, 1) in this share of places, else 0."""
    errors = []
    variance = noise + share / ratio  # of the first residual: x = 0
    nodes = np.linspace(-8, 8, 4001)
    weights = stats.norm.pdf(nodes) * (nodes[1] - nodes[0])
    for _ in range(iterations):
        level, total = threshold * np.sqrt(variance), 1 + variance
        empty = (np.maximum(np.abs(nodes) - threshold, 0) ** 2 * weights).sum() * variance
        seen = nodes * np.sqrt(total)
        kept = np.sign(seen) * np.maximum(np.abs(seen) - level, 0)
        full = ((kept - seen / total) ** 2 * weights).sum() + variance / total
        errors.append((1 - share) * empty + share * full)
        variance = noise + errors[-1] / ratio
    return np.array(errors)


def test_message_passing_follows_its_state_evolution():
    """On Gauss-Bernoulli signals, in every iteration; and NumPy's numbers are the same."""
    dim, symbols, share, noise, iterations, threshold = 600, 300, 0.1, 0.01, 8, 1.5
    rng, error, first = np.random.default_rng(3), [], []
    expected = _state_evolution(share, symbols / dim, noise, threshold, iterations)
    for _ in range(40):
        x = rng.permutation(rng.standard_normal(dim) * (np.arange(dim) < share * dim))
        matrix = rng.standard_normal((symbols, dim)) / np.sqrt(symbols)
        received = matrix @ x + np.sqrt(noise) * rng.standard_normal(symbols)
        models = _amp(received, matrix, threshold, iterations)
        error.append(((models - x) ** 2).mean(1))
        if not first:
            ours, deviation = message_passing(
                jnp.float32(received), jnp.float32(matrix), jnp.float32(threshold), iterations
            )
            np.testing.assert_allclose(ours, models[-1], atol=1e-4)
            variance = noise + error[0][-2] * dim / symbols
            np.testing.assert_allclose(deviation, np.sqrt(variance), rtol=0.1)
            first.append(ours)
    assert_within(np.array(error), expected)
    assert expected[-1] < 0.2 * expected[0]  # a first estimate alone is far off


@pytest.mark.slow
def test_a_dsgd_in_a_run():
    """Sparse updates in half as many symbols: recovered without noise, each user at full power."""
    rng, dim = np.random.default_rng(4), 200
    slopes = np.zeros((3, dim))
    slopes[:, rng.choice(dim, 6, replace=False)] = rng.standard_normal((3, 6)) * [[1], [2], [3]]
    projected = jo.Projected(101, share=0.05, scale=0.2, iterations=40)
    algorithm = jo.cotaf(0.1, 1, precode=jo.FullPower(), compress=projected)
    run = functools.partial(
        jo.simulate, KEY, task=linear(slopes), rounds=3, trials=4, user_power=True
    )
    history = run(algorithm, jo.Channel(snr_db=np.inf))
    assert (history.uses == 101).all()
    np.testing.assert_allclose(history.user_power, 1.0, rtol=1e-5)
    # Which weights they are, up to the projection's own ‖A g‖² ≈ ‖g‖².
    moved, root = steps(history), 1 / np.sqrt((0.01 * slopes**2).sum(1) + 0.04)
    expected = -0.1 * (root[:, None] * slopes).sum(0) / root.sum()
    assert np.linalg.norm(moved - expected, axis=-1).max() < 0.2 * np.linalg.norm(expected)
    assert (np.abs(moved[..., expected == 0]) < 1e-3 * np.abs(expected).max()).all()
    with pytest.raises(jo.InputError, match=r"precode must be one such as jo.Online\(\) with Unc"):
        run(algorithm.replace(compress=jo.Uncompressed()), jo.Channel())
    with pytest.raises(jo.InputError, match="symbols must be at most 201"):
        run(algorithm.replace(compress=projected.replace(symbols=202)), jo.Channel())
