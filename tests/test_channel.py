"""The noise after scaling is sw2/(N²α), once; the power ledger tells the truth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agree import assert_within

import jaxota as jo
from jaxota.stages.answers import ideal_link
from jaxota.stages.channel import Block, Ideal, noise_over, superpose

LOCAL = {"step_size": 1e-2, "steps": 3, "batch": 3}


def _block(values):
    """A block of `values` [user, d] with a budget of 1."""
    one = jnp.float32(1.0)
    return Block(
        values, values, jnp.zeros(values.shape[1]), one, one, None, energies=(values**2).sum(1)
    )


def _noise_variance(snr_db, power, snr_per, dim):
    return power * 10 ** (-snr_db / 10) / (dim if snr_per == "symbol" else 1)


@pytest.mark.parametrize("snr_per", ["vector", "symbol"])
@pytest.mark.parametrize(("snr_db", "power", "control_power"), [(10.0, 1.0, 1.0), (-3.0, 4.0, 0.5)])
def test_equivalent_noise_has_variance_sw2_over_n2_alpha(
    task, snr_per, snr_db, power, control_power
):
    """With a constant gain α = gain² on both blocks, whatever the data and the budgets."""
    gain = 1.7
    algorithm = jo.cobaaf(**LOCAL, precode=jo.Constant(gain), estimate=jo.Identity())
    channel = jo.Channel(snr_db=snr_db, snr_per=snr_per, power=power, control_power=control_power)
    history = jo.simulate(jax.random.key(0), algorithm, channel, task, rounds=4, trials=300)
    expected = _noise_variance(snr_db, power, snr_per, task.dim) / (task.users**2 * gain**2)
    for error in (history.error, history.control_error):
        assert_within(np.asarray(error).ravel() / task.dim, expected)


@pytest.mark.slow
def test_equivalent_noise_of_the_offline_precoder_follows_the_plan(task):
    plan = jo.calibrate(jax.random.key(0), jo.cotaf(**LOCAL), task, rounds=4, trials=50)
    history = jo.simulate(
        jax.random.key(1), jo.cotaf(**LOCAL), jo.Channel(snr_db=7.0), task, 4, 1000, plan=plan
    )
    alpha = 1.0 / np.asarray(plan.update_energy)
    expected = 10**-0.7 / (task.users**2 * alpha)
    assert_within(np.asarray(history.error) / task.dim, expected)


def test_noise_is_white_gaussian_and_independent_between_blocks_and_rounds(task):
    """The estimate minus the truth, standardised: moments of N(0, 1), no correlation."""
    channel, count = jo.Channel(snr_db=jnp.float32(0.0)), 4000
    block = _block(jnp.zeros((3, 2)))
    keys = jax.random.split(jax.random.key(0), (count, 2))

    def draw(key):
        return superpose(key, block, jnp.float32(9.0), channel.noise_variance(2), ideal_link(3))[0]

    noise = jax.jit(jax.vmap(jax.vmap(draw)))(keys)
    noise = np.asarray(noise).reshape(count, 4)  # variance sw2·(P/α)/N² = 1
    assert_within(noise, 0.0)
    assert_within(noise**2, 1.0)
    assert_within(noise**4, 3.0)
    pairs = [noise[:, i] * noise[:, j] for i in range(4) for j in range(i)]
    assert_within(np.stack(pairs, 1), 0.0)


@pytest.mark.slow
def test_scaling_power_at_one_snr_changes_nothing(task, start):
    """P and sw2 = P/snr scale together, and α with them."""

    def run(power):
        return jo.simulate(
            jax.random.key(0),
            jo.cobaaf(**LOCAL),
            jo.Channel(snr_db=3.0, power=power),
            task,
            3,
            4,
            initial=start[:4],
        )

    np.testing.assert_allclose(run(1.0).model, run(1e4).model, rtol=1e-5)


def test_no_budget_is_too_small_or_too_large_for_float32(task, start):
    """P·10^(−snr/10) and gain² under- and overflow here; what counts is sw2/P, and gain/√P."""
    gains, fading = np.linspace(0.5, 2.0, task.users), jo.rayleigh(csi_error=0.1)

    def run(power, precode, snr_db=30.0):
        channel = jo.Channel(
            *(snr_db, power, 2 * power), fading, gains, snr_per="symbol", participants=3
        )
        algorithm = jo.cobaaf(**LOCAL, precode=precode)
        return jo.simulate(jax.random.key(0), algorithm, channel, task, 3, 4, initial=start[:4])

    for precode in (lambda _: jo.Online(), lambda p: jo.Constant(0.1 * np.sqrt(p))):
        for snr_db in (30.0, -20.0):
            one = run(1.0, precode(1.0), snr_db)
            assert (np.asarray(one.deviation) > 0).all()
            for power in (1e-37, 1e37):
                other = run(power, precode(power), snr_db)
                for name in ("model", "power", "control_power", "deviation", "control_deviation"):
                    same = getattr(one, name), getattr(other, name)
                    np.testing.assert_allclose(*same, rtol=2e-4, err_msg=f"{name} at {power}")


def test_a_carrier_may_give_the_noise_variance_in_place_of_the_ratio():
    """sw2/P then comes from `noise_variance` and the budget of the block."""

    class Plain:
        power, control_budget = 4.0, 8.0

        def noise_variance(self, dim):
            return jnp.float32(dim / 2)

    assert noise_over(4.0, Plain(), 2) == 0.25 and noise_over(8.0, Plain(), 2) == 0.125
    assert noise_over(1.0, Ideal(), 2) is None
    channel = jo.Channel(*map(jnp.float32, (0.0, 1e-37, 2e-37)), snr_per="symbol")
    assert noise_over(channel.power, channel, 2) == 0.5
    assert noise_over(channel.control_budget, channel, 2) == 0.25


@pytest.mark.slow
def test_control_power_lowers_the_control_noise_alone(task, start):
    def run(power):
        return jo.simulate(
            jax.random.key(0),
            jo.cobaaf(**LOCAL, estimate=jo.Identity()),
            jo.Channel(snr_db=3.0, control_power=power),
            task,
            1,
            4,
            initial=start[:4],
        )

    weak, strong = run(1.0), run(100.0)
    np.testing.assert_allclose(weak.error, strong.error, rtol=1e-4)
    np.testing.assert_allclose(weak.control_error, 100.0 * strong.control_error, rtol=1e-3)
    np.testing.assert_allclose(weak.control_power, strong.control_power, rtol=1e-5)


def test_extreme_energies_neither_overflow_nor_vanish(task, start):
    """α of 1e-30 and 1e30 give finite models; an energy of zero sends the truth, and shows it."""
    rounds = 3
    ones = np.ones((rounds, task.users))
    for energy in (1e-30, 1e30, 0.0):
        for snr_db in (-200.0, 10.0, 200.0):
            plan = jo.Plan(
                np.full(rounds, energy), 0 * ones, ones, np.full(rounds, energy), 0 * ones, ones
            )
            history = jo.simulate(
                jax.random.key(0),
                jo.cobaaf(**LOCAL),
                jo.Channel(snr_db=snr_db),
                task,
                rounds,
                2,
                plan=plan,
                initial=start[:2],
            )
            assert np.isfinite(history.model).all(), (energy, snr_db)
            assert not np.isnan(history.power).any()
            if energy == 0.0:
                assert (history.error == 0).all()
                assert (np.asarray(history.power) == np.inf).all()


def test_one_energy_per_user_weights_the_average():
    """x_i = √(P/E_i) v_i: the server holds Σ√α_i v_i/Σ√α_i over those heard, noise sw2/(Σ√α_i)²."""
    values = jnp.asarray(np.random.default_rng(0).standard_normal((4, 3), np.float32))
    energy, noise, floor = np.float32([0.5, 2.0, 8.0, 0.1]), jnp.float32(0.7), 0.6
    heard = np.float32([1.0, 1.0, 1.0, 0.0])
    link = ideal_link(4).replace(heard=heard, floor=np.float32(floor))
    keys = jax.random.split(jax.random.key(1), 4000)

    @jax.jit
    def sent(energy, link):
        return jax.vmap(lambda k: superpose(k, _block(values), energy, noise, link))(keys)

    received, deviation, power = sent(energy, link)
    roots = np.sqrt(1 / np.asarray(energy))[:3]
    mean = roots @ np.asarray(values)[:3] / roots.sum()
    assert_within(received, mean)
    expected = 0.7 / (roots.sum() * floor) ** 2
    assert_within((np.asarray(received) - mean) ** 2, expected)
    np.testing.assert_allclose(deviation, np.sqrt(expected), rtol=1e-5)
    np.testing.assert_allclose(power[0], heard * (values**2).sum(1) / energy, rtol=1e-5)
    equal, common = (sent(e, link) for e in (np.full(4, 2.0), np.float32(2.0)))
    for one, other in zip(equal, common, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    silent = sent(energy, link.replace(heard=0 * heard))
    assert all(np.isfinite(x).all() for x in silent)


@pytest.mark.slow
def test_the_history_holds_the_noise_deviation(task):
    """√ν of each block: the error of the identity is ν·d in the mean, ν = sw2/(|S|²·α·h_min²)."""
    algorithm = jo.cobaaf(**LOCAL, precode=jo.Constant(1.3), estimate=jo.Identity())
    fading = jo.rayleigh(threshold=0.5, control_threshold=0.7)
    channel = jo.Channel(snr_db=4.0, fading=fading, control_power=2.0)
    history = jo.simulate(jax.random.key(0), algorithm, channel, task, rounds=4, trials=300)
    heard = np.maximum(np.asarray(history.participants), 1)
    for deviation, floor in ((history.deviation, 0.5), (history.control_deviation, 0.7)):
        expected = np.sqrt(10**-0.4) / (heard * 1.3 * floor)
        np.testing.assert_allclose(deviation, expected, rtol=1e-4)
    np.testing.assert_array_equal(history.to_xarray().deviation, history.deviation)
    free = jo.simulate(jax.random.key(0), jo.fedavg(**LOCAL), channel, task, rounds=4, trials=2)
    assert (np.asarray(free.deviation) == 0).all() and free.control_deviation is None
