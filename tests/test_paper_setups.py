"""Set-ups of other papers, repeated: COTAF's decaying steps, and 10 weighted users of 100."""

import sys
from pathlib import Path

import numpy as np
import pytest

import jaxota as jo

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "paper"))
import decaying_steps
import weighted_users


@pytest.fixture(scope="module")
def exponents():
    return {label: of for label, (_, of) in decaying_steps.exponents(120, 20).items()}


def test_cotaf_falls_with_its_own_steps_as_without_noise(exponents):
    """Both fall clearly, and 1 is within four standard errors of either exponent."""
    for label in ("FedAvg, decaying", "COTAF, decaying"):
        assert exponents[label].low > 0.3
        assert abs(exponents[label].mean - 1.0) < 2 * exponents[label].half_width + 0.2


def test_a_constant_gain_does_not_fall(exponents):
    assert exponents["noisy FedAvg, decaying"].high < exponents["COTAF, decaying"].low


def test_steps_are_those_of_the_theorem():
    assert decaying_steps.decaying(0) == pytest.approx(2 / (2.0 * 12.0))
    assert decaying_steps.decaying(3) == pytest.approx(2 / (2.0 * (12.0 + 4 * 3)))


def test_weights_are_those_of_samples_and_few_are_active():
    task = weighted_users.synthetic(0, users=6, most=150)
    sizes = np.asarray(task.counts)
    assert sizes.min() >= 50 and sizes.max() == 150 and len({*sizes}) > 2
    results = weighted_users.compare(task, rounds=3, trials=2, active=2)
    for label, history in results.items():
        active = 2 if "2 of 6" in label else 6
        np.testing.assert_array_equal(history.participants, active)
        same = np.allclose(history["weighted_loss"], history.loss, rtol=1e-5)
        assert same == (not label.startswith("unweighted"))
        assert np.max(history.power) <= 1 + 1e-5
    own = jo.stats.scores(results["weighted, 2 of 6, COTAF"], "deviation")
    assert (own > 0).all()
