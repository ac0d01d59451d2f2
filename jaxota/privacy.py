"""Privacy ledger: the differential privacy that the channel's noise gives to users.

Liu & Simeone, 2021, "Privacy for free: wireless federated learning via uncoded transmission with
adaptive power control". What the server hears in a round is a Gaussian mechanism: the average of
clipped vectors, plus the noise of the channel. Rounds add up, and the conversion to (ε, δ) is that
of the package dp-accounting: pip install 'jaxota[privacy]'.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from jaxota._core import inputs
from jaxota._core.part import Numbers
from jaxota.algorithms import Algorithm
from jaxota.errors import InputError
from jaxota.history import History
from jaxota.stages.channel import Channel

CHANGES = {"removed": 1.0, "replaced": 2.0}  # of a user, and how far its vector moves in bounds


def spent(
    history: History, algorithm: Algorithm, channel: Channel, change: str = "replaced"
) -> Float[np.ndarray, "*setting trial round"]:
    """Return ρ, the zero-concentrated privacy spent up to each round: Σ_r Δ_r²/(2ν_r).

    Every user's whole data are protected against who sees all that the server receives; that users
    send at random, and minibatches, are not counted in favour.

    Args:
        history: the results of a run; a continued run begins with its own first round.
        algorithm, channel: those of the run. Refused unless vectors are bounded by
            `jo.NormBounded(bound)` and nothing else reveals data: gains of the data's own, plans,
            coded reports, a control block, or gains that are not inverted exactly.
        change: what two sets of data differ in: a user "removed", whose share of the average is
            Δ = bound/n, or "replaced", 2·bound/n.
    """
    _refuse(algorithm, channel, history)
    factor = CHANGES[inputs.chosen("change", change, tuple(CHANGES))]
    compress: Any = algorithm.compress
    heard, noise = np.asarray(history.participants), np.asarray(history.deviation, np.float64)
    bound = np.asarray(compress.bound, np.float64)
    if bound.ndim:  # swept
        bound = bound[:, None, None]
    with np.errstate(divide="ignore"):
        ratio = factor * bound / np.maximum(heard, 1.0) / noise
    return np.cumsum(np.where(heard > 0, ratio**2 / 2, 0.0), -1)  # silence reveals nothing


def epsilon(rho: Numbers, delta: float) -> np.ndarray:
    """Return ε for each ρ of `spent`, by the privacy loss distribution of dp-accounting.

    Gaussian mechanisms compose to one Gaussian mechanism, whichever data chose the next round.

    Args:
        rho: ρ, of any shape. Each new value takes about a second.
        delta: δ, between 0 and 1.
    """
    try:
        from dp_accounting import GaussianDpEvent
        from dp_accounting.pld import PLDAccountant
    except ImportError:
        raise InputError("privacy needs dp-accounting: pip install 'jaxota[privacy]'") from None
    values, limit = inputs.real("rho", rho), float(inputs.number("delta", delta))
    if not 0 < limit < 1:
        raise InputError(f"delta must lie between 0 and 1, got {limit:g}")
    if not (values >= 0).all():
        raise InputError("rho must be ≥ 0, as spent(...) returns it")

    def one(value: float) -> float:
        if value == 0 or np.isinf(value):
            return float(value)
        accountant = PLDAccountant(value_discretization_interval=1e-3)  # rounded up, not down
        return accountant.compose(GaussianDpEvent(1 / np.sqrt(2 * value))).get_epsilon(limit)

    unique, places = np.unique(values, return_inverse=True)
    return np.array([one(value) for value in unique])[places].reshape(np.shape(values))


def _refuse(algorithm: Algorithm, channel: Channel, history: History) -> None:
    """Raise InputError where the noise, or anything else that is sent, depends on the data."""
    why = "for privacy"
    compress, precode = algorithm.compress, algorithm.precode
    fading: Any = channel.fading
    if not hasattr(compress, "bound"):
        raise InputError(f"algorithm.compress must be jo.NormBounded(bound) {why}")
    if not getattr(precode, "independent", False):
        raise InputError(
            f"algorithm.precode must choose its gain without looking at data {why}, as "
            "jo.Constant(gain) and jo.Bounded(M) do"
        )
    if algorithm.needs:
        raise InputError(f"algorithm must need no plan {why}, which is measured on data")
    if algorithm.local.controlled:
        raise InputError(f"algorithm.local must send no control block {why}: it is not bounded")
    if np.any(np.asarray(history.reports)):
        raise InputError(f"algorithm must send no coded reports {why}: they are free of noise")
    if algorithm.medium(channel) is not channel or not channel.noise.gaussian:
        raise InputError(f"algorithm and channel must send over Gaussian noise {why}")
    flat = getattr(fading, "carriers", None) in (None, 1)
    inverted = hasattr(getattr(fading, "answer", None), "threshold") and flat
    if hasattr(fading, "answer") and (not inverted or np.any(np.asarray(fading.csi_error))):
        raise InputError(
            f"channel.fading must be inverted exactly {why}, by jo.Inversion() with csi_error=0 "
            "and one carrier"
        )
