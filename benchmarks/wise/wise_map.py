"""Maps of regimes on which WISE is compared with other algorithms.

A regime of synthetic regression is a shape (users, steps, dimension, batch), a pair of spreads (of
the data and of the users' optima) and an SNR; a map is the product of these. It has two halves: the
features as they are, whose steepest direction is nearly the vector of ones for every user, and
features rotated by a random orthogonal matrix. Data draws below 1000 are for design decisions. Each
seed of a test has 16 later draws of its own.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

import jaxota as jo

DESIGN = range(1000)  # data draws for design decisions; tests use later ones only
DRAWS, EVERY, CALIBRATION_TRIALS = 16, 5, 20
STEP_SIZE = 1e-2
STEP_SIZES = (1e-3, 3e-3, STEP_SIZE, 3e-2, 1e-1)  # from which competitors choose in hindsight
LOCAL: dict[str, Any] = {"step_size": STEP_SIZE, "steps": 10, "batch": 10}
REGIME = ["shape", "spread", "snr_db"]


class Map(NamedTuple):
    """All combinations of shapes, pairs of spreads and SNRs."""

    shapes: dict[str, tuple[int, int, int, int | None]]  # label: N, K, d, batch (None: full)
    spreads: list[tuple[float, float]]  # of the data, of the models
    snr_db: list[float]
    rounds: int


MAP = Map(
    {f"N = {n}, K = {k}": (n, k, 10, 10) for n in (5, 20, 100) for k in (1, 10)},
    [(0.0, 0.0), (0.1, 1.0), (0.1, 10.0), (1.0, 1.0)],
    [-10.0, 0.0, 10.0, 20.0, 30.0],
    rounds=60,
)
OFF_MAP = Map(
    {
        "N = 10, K = 3": (10, 3, 10, 10),
        "N = 50, K = 20": (50, 20, 10, 10),
        "N = 30, K = 5, full gradients": (30, 5, 10, None),
        "N = 10, K = 5, d = 30": (10, 5, 30, 10),
    },
    [(0.3, 3.0), (0.0, 10.0), (0.5, 0.1), (0.05, 0.3)],
    [-15.0, -5.0, 5.0, 15.0, 25.0, 40.0],
    rounds=80,
)
HARD = Map(  # where an unbounded gain bursts, and where two users are heard in much noise
    {
        "N = 5, K = 1, full gradients": (5, 1, 10, None),
        "N = 30, K = 5, full gradients": (30, 5, 10, None),
        "N = 2, K = 1": (2, 1, 10, 10),
        "N = 2, K = 10": (2, 10, 10, 10),
    },
    MAP.spreads,
    [-10.0, 10.0, 30.0, 100.0],  # at 100 dB noise is of the size of rounding
    rounds=60,
)


def draws(seed: int) -> list[int]:
    """Return the data draws of a seed, none of which is in `DESIGN`."""
    seeds = (2**32 - DESIGN.stop) // DRAWS  # a draw is itself a seed, of 32 bits
    if not 0 <= seed < seeds:
        raise jo.InputError(f"seed must be < {seeds} and not negative, got {seed}")
    first = DESIGN.stop + DRAWS * seed
    return list(range(first, first + DRAWS))


def study(
    name, regimes, algorithms, draws, seed, trials, step_sizes=(STEP_SIZE,), rotated=False
) -> jo.Study:
    """Return the study of these algorithms on half a map and on the given data draws."""
    users, steps, dims, batches = zip(*regimes.shapes.values(), strict=True)
    shapes = {"users": users, "steps": steps, "dim": dims, "batch": batches}
    data, models = zip(*regimes.spreads, strict=True)
    spreads = {"data_spread": data, "model_spread": models}
    return jo.Study(
        algorithms,
        jo.Channel(),
        jo.tasks.synthetic_regression(
            jax.random.key(0), users=100, samples=100, dim=10, rotate=rotated
        ),
        regimes.rounds,
        trials,
        over=jo.axis("shape", shapes, list(regimes.shapes))
        * jo.axis("spread", spreads, [f"{a:g}, {b:g}" for a, b in regimes.spreads])
        * jo.grid(snr_db=regimes.snr_db, step_size=step_sizes)
        * jo.axis("draw", {"task.key": draws}, draws),
        key=seed,
        every=EVERY,
        calibration_trials=CALIBRATION_TRIALS,
        keep="mean",
        name=name,
    )


def gaps(dataset):
    """Return mean gaps [algorithm, regime…, step_size, draw, round], inf where a trial diverged."""
    complete = (dataset.used == dataset.trials) & np.isfinite(dataset.gap_mean)
    gap = dataset.gap_mean.where(complete, np.inf).rename(evaluation="round")
    return gap.drop_vars("task.key", errors="ignore")  # the same numbers as `draw`


def relative_to_wise(dataset):
    """Return final gaps over that of WISE [algorithm, regime…, draw], of one step size."""
    final = gaps(dataset).isel(round=-1, step_size=0, drop=True)
    return (final.drop_sel(algorithm="WISE") / final.sel(algorithm="WISE", drop=True)).load()


def geometric_mean(ratios) -> float:
    """Return the geometric mean of the ratios that are finite and positive."""
    values = np.asarray(ratios)
    values = values[np.isfinite(values) & (values > 0)]
    return float(np.exp(np.log(values).mean())) if values.size else np.nan


def stated_mean(ratios) -> str:
    """Return the geometric mean as text, which says how many ratios of 0 or ∞ are left out."""
    values = np.asarray(ratios)
    left_out = int((~np.isfinite(values) | (values <= 0)).sum())
    return f"{geometric_mean(values):.3g}" + (f" ({left_out} left out)" if left_out else "")


def undecided(ratios) -> int:
    """Count the regimes [regime…, draw] whose 95 % interval of the median contains 1.

    Too few draws for such an interval leave a regime undecided, too.
    """

    def contains_one(values):
        low, high, level = jo.stats.median(np.nan_to_num(values, nan=1.0, posinf=np.inf))
        return low <= 1 <= high or level < 0.95

    return int(np.apply_along_axis(contains_one, -1, ratios.values).sum())


def table(by_draw) -> list[list[str]]:
    """Return a row for each variant of WISE from ratios [algorithm, regime…, draw]."""
    header = ["geometric mean", "worse in", "better in", "undecided", "worst", "best"]
    rows = [["WISE with", *header, "diverges in"]]
    for variant in by_draw:
        ratio = variant.median("draw")
        finite = ratio.values[np.isfinite(ratio.values)]
        rows.append(
            [
                variant.algorithm.item(),
                f"{geometric_mean(finite):.3g}",
                f"{int((ratio > 1.05).sum())} of {ratio.size}",
                f"{int((ratio < 0.95).sum())}",
                f"{undecided(variant)}",
                f"{finite.max():.3g}" if finite.size else "–",
                f"{finite.min():.3g}" if finite.size else "–",
                f"{ratio.size - finite.size}",
            ]
        )
    return rows
