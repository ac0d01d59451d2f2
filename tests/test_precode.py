"""Budgets: kept exactly online, in expectation offline; overspending is visible."""

import jax
import numpy as np
import pytest

import jaxota as jo

LOCAL = {"step_size": 1e-2, "steps": 3, "batch": 3}


@pytest.mark.slow
@pytest.mark.parametrize("make", [jo.cotaf, jo.baaf, jo.cobaaf])
def test_online_keeps_the_budget_in_every_round_of_every_trial(task, make):
    algorithm = make(**LOCAL, precode=jo.Online())
    history = jo.simulate(
        jax.random.key(0), algorithm, jo.Channel(snr_db=0.0), task, 8, 50, user_power=True
    )
    blocks = [history.user_power]
    if make is jo.cobaaf:
        blocks.append(history.user_control_power)
    for power in blocks:
        assert power.shape == (50, 8, task.users)
        assert (power <= 1 + 1e-5).all()
        np.testing.assert_allclose(power.max(-1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(history.power, history.user_power.max(-1))


def test_offline_spends_what_the_plan_says(task, start):
    """power = ‖Δ_i‖²·α/P with the α of the plan: half the plan's energy is twice the power."""
    key, algorithm = jax.random.key(0), jo.cotaf(**LOCAL, estimate=jo.JamesStein())
    plan = jo.calibrate(key, algorithm, task, rounds=1, trials=20)
    half = plan.replace(update_energy=plan.update_energy / 2)

    def run(p):
        return jo.simulate(key, algorithm, jo.Channel(), task, 1, 5, plan=p, initial=start[:5])

    np.testing.assert_allclose(run(half).power, 2 * run(plan).power, rtol=1e-5)


@pytest.mark.slow
def test_offline_cobaaf_overspends_once_calibration_has_converged(task):
    """Noise-free controls converge, Δ → 0, and the noisy run pays for it: the ledger shows it."""
    algorithm = jo.cobaaf(step_size=1e-2, steps=5, batch=None)
    history = jo.simulate(jax.random.key(0), algorithm, jo.Channel(snr_db=10.0), task, 120, 4)
    assert history.power[:, 0].mean() < 3
    assert history.power[:, -1].mean() > 100
    assert np.isfinite(history.model).all()


@pytest.mark.slow
def test_constant_without_gain_meets_the_plan_in_its_hardest_round(task, start):
    key, algorithm = jax.random.key(0), jo.noisy_fedavg(**LOCAL)
    plan = jo.calibrate(key, algorithm, task, rounds=4, trials=20)
    derived = jo.simulate(key, algorithm, jo.Channel(power=2.0), task, 4, 3, plan=plan)
    gain = np.sqrt(2.0 / np.max(plan.update_energy))
    given = jo.noisy_fedavg(**LOCAL, precode=jo.Constant(gain))
    given = jo.simulate(key, given, jo.Channel(power=2.0), task, 4, 3)
    np.testing.assert_allclose(derived.model, given.model, rtol=1e-5)
    np.testing.assert_allclose(derived.power, given.power, rtol=1e-5)


@pytest.mark.slow
def test_bounded_is_the_constant_gain_of_its_bound(task):
    """√P/(KηM) on the model block and √P/M on the control block, before their paths part."""
    bound, reach = 50.0, LOCAL["steps"] * LOCAL["step_size"]

    def run(precode):
        algorithm = jo.cobaaf(**LOCAL, precode=precode, estimate=jo.Identity())
        return jo.simulate(jax.random.key(0), algorithm, jo.Channel(power=2.0), task, 1, 3)

    bounded = run(jo.Bounded(bound))
    model = run(jo.Constant(np.sqrt(2.0) / (reach * bound)))
    control = run(jo.Constant(np.sqrt(2.0) / bound))
    np.testing.assert_allclose(bounded.power, model.power, rtol=1e-5)
    np.testing.assert_allclose(bounded.error, model.error, rtol=1e-3)
    np.testing.assert_allclose(bounded.control_power, control.control_power, rtol=1e-5)
    np.testing.assert_allclose(bounded.control_error, control.control_error, rtol=1e-3)


@pytest.mark.slow
def test_mean_power_averages_over_all_users(task):
    """Silent users count too; `MeanPower` spends P on average, and some users spend more."""
    run = jax.random.key(0), jo.cobaaf(**LOCAL, precode=jo.Online()), jo.Channel(participants=2)
    history = jo.simulate(*run, task, 4, 5, user_power=True)
    np.testing.assert_allclose(history.mean_power, history.user_power.mean(-1), rtol=1e-6)
    np.testing.assert_allclose(
        history.mean_control_power, history.user_control_power.mean(-1), rtol=1e-6
    )
    assert (history.mean_power <= 2 / task.users + 1e-5).all()
    spent = jo.simulate(run[0], jo.cotaf(**LOCAL, precode=jo.MeanPower()), jo.Channel(), task, 4, 5)
    np.testing.assert_allclose(spent.mean_power, 1.0, rtol=1e-5)
    assert (spent.power > 1.0).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "scalars"),
    [
        (jo.cotaf(**LOCAL), 0),
        (jo.cotaf(**LOCAL, precode=jo.Online()), 1),
        (jo.cotaf(**LOCAL, precode=jo.Online(), estimate=jo.ReportedMMSE()), 3),
        (jo.cobaaf(**LOCAL, precode=jo.Online(), estimate=jo.ReportedMMSE()), 6),
        (jo.cotaf(**LOCAL, compress=jo.Centred(), precode=jo.MeanPower()), 2),
        (jo.fedavg(**LOCAL), 0),
        (jo.wise(**LOCAL), 3),
    ],
)
def test_the_history_counts_coded_scalars(task, algorithm, scalars):
    history = jo.simulate(
        jax.random.key(0), algorithm, jo.Channel(), task, 2, 3, calibration_trials=2
    )
    np.testing.assert_array_equal(history.reports, np.full((3, 2), scalars))
