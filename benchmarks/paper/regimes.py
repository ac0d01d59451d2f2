"""Which algorithm has the lowest final gap, over SNR and the spreads of data and models?

    jaxota run benchmarks/paper/regimes.py [--trials 8] [--seed 0]

Two maps of synthetic regression, SNR × model_spread and SNR × data_spread, with online precoders
and the other settings of fig1. A block of controls costs as much as a block of models. "COBAAF,
half" therefore has half of the power for each block and is read at half of the rounds, when it has
used the channel as often as the other algorithms.
"""

import numpy as np
import pandas
import regimes_plot
import xarray
from data_draws import NoisePerDraw, data_draws, finite_mean

import jaxota as jo

DRAWS, ROUNDS, CALIBRATION_TRIALS = 20, 60, 20
SNR_DB = (-10.0, -5.0, 0.0, 5.0, 10.0, 15.0, 20.0)
MODEL_SPREADS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)  # at data_spread 0.1
DATA_SPREADS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)  # at model_spread 1
USERS, STEPS = 20, 10
LEVEL = 0.95
HALF = "COBAAF, half"
AS_PAPER = ["noisy FedAvg", "COTAF", "BAAF", "COBAAF"]
EQUAL_BUDGET = ["noisy FedAvg", "COTAF", "BAAF", HALF]
RATIOS = {"BAAF": "BAAF", "COBAAF": "COBAAF", "COBAAF_half": HALF}  # to COTAF, by name in the CSV


@jo.part
class HalfPower:
    """Online precoder that spends half of the power budget."""

    needs = ()

    def energy(self, block):
        return 2.0 * jo.Online().energy(block)


@jo.experiment("which algorithm has the lowest final gap over SNR and spreads")
def regimes(run, seed=0, trials=8):
    """Run one sweep for both maps, and say which differences are decided."""
    gaps = final_gaps(run(study(seed, trials))).load()
    ratios = {name: log_ratio(gaps, "COTAF", other) for name, other in RATIOS.items()}
    best = {
        "as the paper counts": lowest(gaps, AS_PAPER),
        "equal channel uses and power": lowest(gaps, EQUAL_BUDGET),
    }
    dims = gaps.dims[1:]
    logs = {f"log10_COTAF_over_{name}": (dims, values) for name, values in ratios.items()}
    return jo.Report(
        name="regimes",
        caption="regimes: final gaps under the online precoder, synthetic regression, N = "
        f"{USERS}, K = {STEPS}, {ROUNDS} rounds, SNR per vector, {gaps.spreads.size} spreads × "
        f"{gaps.snr_db.size} SNRs, {gaps.draw.size} data draws, {trials} trials each, seed {seed}",
        table=counts(best),
        remarks=remarks(gaps, ratios),
        dataset=xarray.Dataset({"gap": gaps, **logs}),
        csv=rows(gaps, ratios, best),
        figure=lambda: regimes_plot.draw(maps(), gaps.snr_db.values, best, ratios, decided),
    )


def spreads():
    """All (data_spread, model_spread) of both maps, each pair once."""
    pairs = [(0.1, model) for model in MODEL_SPREADS] + [(data, 1.0) for data in DATA_SPREADS]
    return list(dict.fromkeys(pairs))


def maps():
    """Label, swept values and places among `spreads()` of each map."""
    place = spreads().index
    return [
        ("model_spread", MODEL_SPREADS, [place((0.1, model)) for model in MODEL_SPREADS]),
        ("data_spread", DATA_SPREADS, [place((data, 1.0)) for data in DATA_SPREADS]),
    ]


def study(seed, trials):
    """All algorithms over both maps, on `DRAWS` data draws."""
    local = {"step_size": 1e-2, "steps": STEPS, "batch": 10}
    algorithms = {
        "noisy FedAvg": jo.noisy_fedavg(**local),
        "COTAF": jo.cotaf(**local, precode=jo.Online()),
        "BAAF": jo.baaf(**local, precode=jo.Online()),
        "COBAAF": jo.cobaaf(**local, precode=jo.Online()),
        HALF: jo.cobaaf(**local, precode=HalfPower()),
    }
    base = jo.figures.FIGURES["fig1"].study(seed)  # for its keys of data and trials
    data, models = zip(*spreads(), strict=True)
    labels = [f"{a:g}, {b:g}" for a, b in spreads()]
    return jo.Study(
        algorithms,
        jo.Channel(noise=NoisePerDraw()),
        jo.tasks.synthetic_regression(base.task.key, users=USERS, samples=100, dim=10),
        ROUNDS,
        trials,
        over=jo.axis("spreads", {"data_spread": data, "model_spread": models}, labels)
        * jo.grid(snr_db=SNR_DB)
        * data_draws(base.task.key, DRAWS),
        key=base.key,
        every=ROUNDS // 2,
        calibration_trials=CALIBRATION_TRIALS,
        keep="mean",
        reference="COTAF",
        name="regimes",
    )


def final_gaps(dataset):
    """Mean gap [algorithm, spreads, snr_db, draw], infinite where a trial diverged.

    The gap is read at half of the rounds for `HALF`, at the last round for the others.
    """
    gaps = finite_mean(dataset, "gap")
    last = gaps.isel(evaluation=-1, drop=True)
    return gaps.isel(evaluation=0, drop=True).where(gaps.algorithm == HALF, last)


def log_ratio(gaps, other, one):
    """log10(gap of `other` / gap of `one`) [spreads, snr_db, draw]; 0 where both diverged."""
    above, below = (gaps.sel(algorithm=name).values for name in (other, one))
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.log10(above) - np.log10(below)
    return np.where(np.isnan(ratio), 0.0, ratio)


def decided(ratios):
    """Whether the interval of the median over draws excludes 0 [spreads, snr_db]."""
    low, high, level = _median_intervals(ratios)
    return ((low > 0) | (high < 0)) & (level >= LEVEL)


def _median_intervals(ratios):
    """Bounds and level of the median's interval over the last axis, each [spreads, snr_db]."""
    bounds = np.apply_along_axis(lambda draws: jo.stats.median(draws, LEVEL), -1, ratios)
    return np.moveaxis(bounds, -1, 0)


def lowest(gaps, names):
    """Number of the algorithm with the lowest median gap, and whether its lead is decided.

    Both are [spreads, snr_db]; the number is −1 where all algorithms diverge. The lead is decided
    against the second lowest, on the same data draws.
    """
    medians = np.stack([np.median(gaps.sel(algorithm=name).values, -1) for name in names])
    first, second = np.argsort(medians, 0)[:2]
    lead = np.zeros((*first.shape, gaps.sizes["draw"]))
    for place in np.ndindex(first.shape):
        pair = names[second[place]], names[first[place]]
        lead[place] = log_ratio(gaps[:, place[0], place[1]], *pair)
    return np.where(np.isfinite(medians.min(0)), first, -1), decided(lead)


def counts(best):
    """Table of the regimes that each algorithm leads, and in brackets of those decided."""
    table = [["lowest median gap in", *AS_PAPER, "all diverge"]]
    for label, (first, sure) in best.items():
        led = [first == number for number in range(len(AS_PAPER))]
        cells = [f"{int(where.sum())} ({int((where & sure).sum())})" for where in led]
        table.append([label, *cells, str(int((first < 0).sum()))])
    return table


def remarks(gaps, ratios):
    """Sentences under the table."""
    lines = [
        "( ): regimes among them that are decided: the 95 % interval of the median over data draws "
        "of log10(second lowest gap / lowest gap) excludes 0. The same draws chose the lowest.",
        "Equal channel uses and power: COBAAF has half of the power for each of its two blocks and "
        f"is read at round {ROUNDS // 2}, the others at round {ROUNDS}.",
    ]
    for name, values in ratios.items():
        middle, sure = np.median(values, -1), decided(values)
        words = "COBAAF at equal channel uses and power" if "half" in name else name
        lines.append(
            f"{words}: below COTAF in {int((sure & (middle > 0)).sum())} of {middle.size} regimes, "
            f"above it in {int((sure & (middle < 0)).sum())}, undecided in {int((~sure).sum())}."
        )
    lost = int(np.isinf(gaps.values).any(-1).any(0).sum())
    if lost:
        lines.append(
            f"In {lost} regimes a trial diverged on some draw: the gap of its algorithm counts as "
            "infinite there, and two infinite gaps as equal."
        )
    return lines


def rows(gaps, ratios, best):
    """Tidy rows of the CSV: ratios with intervals in every regime, then the lowest."""
    places = list(np.ndindex(*gaps.shape[1:3]))
    regime = [(*spreads()[i], float(gaps.snr_db[j])) for i, j in places]
    frames = []
    for name, values in ratios.items():
        low, high, _ = _median_intervals(values)
        numbers = {"value": np.median(values, -1), "ci_low": low, "ci_high": high}
        frames.append(_frame(regime, f"log10(COTAF/{name})", decided(values), numbers))
    for name, (first, sure) in zip(("best", "best_equal"), best.values(), strict=True):
        winners = np.array([*AS_PAPER, "none"], object)[first]
        frames.append(_frame(regime, name, sure, {"value": winners, "ci_low": "", "ci_high": ""}))
    return pandas.concat(frames, ignore_index=True)


def _frame(regime, quantity, sure, columns):
    frame = pandas.DataFrame(regime, columns=["data_spread", "model_spread", "snr_db"])
    frame["quantity"] = quantity
    for name, values in columns.items():
        flat = np.broadcast_to(np.asarray(values, object), sure.shape).ravel()
        frame[name] = [float(f"{x:.6g}") if isinstance(x, float) else x for x in flat]
    frame["decided"] = np.where(sure.ravel(), "yes", "no")
    return frame
