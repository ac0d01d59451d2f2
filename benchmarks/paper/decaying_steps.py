"""Does COTAF's gap fall as 1/r with its own decaying steps, as that of error-free local SGD does?

    python benchmarks/paper/decaying_steps.py [--rounds 400] [--trials 20]

Sery, Shlezinger, Cohen and Eldar, "Over-the-air federated learning from heterogeneous data", IEEE
Transactions on Signal Processing 69, 2021: with η_t = 2/(μ(γ + t)) COTAF converges to the optimum
at the rate 1/t, although the channel is noisy, because shorter updates are sent with a larger gain.
A constant gain keeps the noise as it is, and a constant step keeps an error floor.

What differs from the paper: synthetic, well-conditioned least squares in place of the Million Song
data, so that μ and the smoothness are known; 8 users; a step size for each round, that of its first
local step; all gains from a calibration of 20 runs.
"""

import argparse

import numpy as np
from well_conditioned import well_conditioned

import jaxota as jo

STEPS, BATCH, SNR_DB = 4, 5, 0.0  # SNR per vector
CONVEX, SMOOTH = 2.0, 3.0  # least and largest eigenvalue of all users' Hessians
GAMMA = max(8.0 * SMOOTH / CONVEX, STEPS)


def decaying(r):
    """η of the round after r others, by COTAF's theorem."""
    return 2.0 / (CONVEX * (GAMMA + STEPS * r))


def exponents(rounds, trials, seed=0):
    """Gaps by algorithm, and −slope of log gap against log(γ + t) over the last three quarters.

    Returns:
        By algorithm the history and the exponent as a `jo.stats.Interval`: 1 where the gap falls as
        1/t. Both ends are means over a tenth of the rounds up to there.
    """
    (task,) = well_conditioned(seed, 1, condition=SMOOTH / CONVEX)
    local = {"steps": STEPS, "batch": BATCH}
    algorithms = {
        "FedAvg, decaying": jo.fedavg(decaying, **local),
        "COTAF, decaying": jo.cotaf(decaying, **local),
        "COTAF, constant": jo.cotaf(decaying(rounds / 10), **local),
        "noisy FedAvg, decaying": jo.noisy_fedavg(decaying, **local),
    }
    results = {}
    for label, algorithm in algorithms.items():
        run = jo.Channel(SNR_DB), task, rounds, trials
        history = jo.simulate(seed, algorithm, *run, calibration_trials=20)
        early, late = (window(history.gap, end) for end in (rounds // 4, rounds))
        length = np.log((GAMMA + STEPS * rounds) / (GAMMA + STEPS * rounds / 4))
        results[label] = history, jo.stats.interval(np.log(early / late) / length)
    return results


def window(gap, end):
    """Mean gap of each trial over the tenth of the rounds up to `end`."""
    return np.asarray(gap, np.float64)[:, end - max(1, end // 10) : end].mean(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--trials", type=int, default=20)
    options = parser.parse_args()
    print(f"{options.trials} trials, 95 % intervals; the gap falls as r^−exponent")
    print(f"{'':24} {'gap at R/4':>11} {'gap at R':>11}  exponent")
    for label, (history, exponent) in exponents(options.rounds, options.trials).items():
        ends = [window(history.gap, end).mean() for end in (options.rounds // 4, options.rounds)]
        spread = f"{exponent.mean:5.2f} ± {exponent.half_width:.2f}"
        print(f"{label:24} {ends[0]:11.3g} {ends[1]:11.3g}  {spread}", flush=True)


if __name__ == "__main__":
    main()
