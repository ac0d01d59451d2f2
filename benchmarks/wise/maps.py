"""How often does WISE, at one setting, have the smallest final gap on a map of regimes?

jaxota run benchmarks/wise/maps.py:wise      against the paper's algorithms
jaxota run benchmarks/wise/maps.py:offmap    against these, in other regimes
jaxota run benchmarks/wise/maps.py:hard      the same with two users, or with full gradients
jaxota run benchmarks/wise/maps.py:rivals    against tuned competitors

With --set rotated=true the features are rotated, with --set draws=8 there are fewer data draws.
"""

import map_figure
import numpy as np
import pandas
import wise_map
import xarray
from competitors import baselines
from competitors import rivals as rival_groups
from wise_map import LOCAL, REGIME, STEP_SIZE

import jaxota as jo

MARGIN = 1.05  # ratios up to here count as no worse
SAME = "same step size"  # competitors of all other groups choose theirs in hindsight


@jo.experiment("WISE beside the best of noisy FedAvg, COTAF, BAAF and COBAAF in 120 regimes")
def wise(
    run, seed: int = 0, trials: int = 8, draws: int = wise_map.DRAWS, rotated: bool = False
) -> jo.Report:
    return _compare(run, "wise", wise_map.MAP, _paper(), seed, trials, draws, rotated)


@jo.experiment("WISE beside the baselines in 96 other regimes")
def offmap(
    run, seed: int = 0, trials: int = 8, draws: int = wise_map.DRAWS, rotated: bool = False
) -> jo.Report:
    return _compare(run, "offmap", wise_map.OFF_MAP, _paper(), seed, trials, draws, rotated)


@jo.experiment("WISE beside the baselines with full gradients, and with two users")
def hard(
    run, seed: int = 0, trials: int = 8, draws: int = wise_map.DRAWS, rotated: bool = False
) -> jo.Report:
    return _compare(run, "hard", wise_map.HARD, _paper(), seed, trials, draws, rotated)


@jo.experiment("WISE beside tuned competitors: coded means, minibatch SGD, server optimisers")
def rivals(
    run, seed: int = 0, trials: int = 8, draws: int = wise_map.DRAWS, rotated: bool = False
) -> jo.Report:
    groups = rival_groups(wise_map.MAP.rounds)
    peak = {label: group for label, group in groups.items() if label != "mean power P"}
    groups |= {"all at peak power P": _union(peak), "all": _union(groups)}
    return _compare(run, "rivals", wise_map.MAP, groups, seed, trials, draws, rotated)


def _union(groups: dict[str, dict[str, jo.Algorithm]]) -> dict[str, jo.Algorithm]:
    """Return the algorithms of all groups."""
    return {name: each for group in groups.values() for name, each in group.items()}


def _paper() -> dict[str, dict[str, jo.Algorithm]]:
    """Return the baselines under both rules for their step sizes."""
    return {SAME: baselines(), "best in hindsight": baselines()}


def _compare(run, name, regimes, groups, seed, trials, draws, rotated) -> jo.Report:
    """Report WISE's gap over that of the best of each group of competitors."""
    data, algorithms = wise_map.draws(seed)[:draws], {"WISE": jo.wise(**LOCAL)}
    for group in groups.values():
        algorithms |= group
    half, title = (f"{name}_rotated", "rotated") if rotated else (name, "not rotated")
    dataset = run(
        wise_map.study(half, regimes, algorithms, data, seed, trials, wise_map.STEP_SIZES, rotated)
    )
    index = pandas.Index(groups, name="against")
    chosen = [(list(group), label != SAME) for label, group in groups.items()]
    ratios = xarray.concat([ratio(dataset, *each) for each in chosen], index)
    means = xarray.concat([ratio_of_means(dataset, *each) for each in chosen], index).load()
    # Full gradients, a batch of None, are no coordinate of the dataset.
    batches = ["all" if batch is None else batch for *_, batch in regimes.shapes.values()]
    ratios = ratios.assign_coords(batch=("shape", batches)).load()
    fields = ["users", "steps", "dim", "batch", "data_spread", "model_spread", "snr_db", "draw"]
    best = "its rivals" if name == "rivals" else "the baselines"
    columns = "≤ 1", "geometric mean", "worst", "worst draw", "means: ≤ 1.05", "geom.", "worst"
    rows = [_row(*each) for each in zip(ratios.isel(round=-1), means, strict=True)]
    return jo.Report(
        name=half,
        caption=f"{name}: the final gap of WISE over that of the best of {best}, "
        f"{means[0].size} regimes of synthetic regression, features {title}, {regimes.rounds} "
        f"rounds, {len(data)} new data draws, {trials} trials each, seed {seed}",
        table=[["against", f"medians: ≤ {MARGIN:g}", *columns], *rows],
        remarks=[*_explanations(dataset), *(line for each in ratios for line in _details(each))],
        dataset=ratios.drop_vars("batch").to_dataset(name="ratio").assign(ratio_of_means=means),
        csv=ratios.to_dataframe("ratio").reset_index()[["against", *fields, "round", "ratio"]],
        figure=lambda: map_figure.draw(
            ratios,
            f"WISE over the best of {best}, features {title}: median over {len(data)} data draws, "
            f"{trials} trials each; regimes above 1 are framed",
        ),
    )


def ratio(dataset, against: list[str], hindsight: bool):
    """Return WISE's mean gap over that of the best competitor [regime…, draw, round].

    In `hindsight`, each competitor has the best step size for this regime, draw and round, and in
    the last round the better of its last model and its weighted average.
    """
    gaps = wise_map.gaps(dataset)
    ours = gaps.sel(algorithm="WISE", step_size=STEP_SIZE, drop=True)
    others = gaps.sel(algorithm=against)
    if not hindsight:
        return ours / others.sel(step_size=STEP_SIZE, drop=True).min("algorithm")
    last = others["round"] == others["round"][-1]
    average = _average(dataset, against).broadcast_like(others)
    others = others.where(~last, np.minimum(others, average))
    return ours / others.min(["algorithm", "step_size"])


def ratio_of_means(dataset, against: list[str], hindsight: bool):
    """Return WISE's final gap over the best competitor's, both means over draws [regime…].

    In `hindsight`, one competitor with one step size and one output is chosen for all draws.
    """
    final = wise_map.gaps(dataset).isel(round=-1, drop=True)
    ours = final.sel(algorithm="WISE", step_size=STEP_SIZE, drop=True).mean("draw")
    others = final.sel(algorithm=against)
    if not hindsight:
        return ours / others.sel(step_size=STEP_SIZE, drop=True).mean("draw").min("algorithm")
    others = np.minimum(others.mean("draw"), _average(dataset, against).mean("draw"))
    return ours / others.min(["algorithm", "step_size"])


def _average(dataset, against: list[str]):
    """Return the final gaps of weighted averages of models, inf where a trial diverged."""
    final = wise_map.gaps(dataset).sel(algorithm=against).isel(round=-1, drop=True)
    average = dataset.average_gap_mean.sel(algorithm=against).drop_vars("task.key", errors="ignore")
    return average.where(np.isfinite(final), np.inf)


def _row(final, means) -> list[str]:
    """Return the table's row of one comparison: final ratios [regime…, draw], and of means."""
    median = final.median("draw")
    return [
        final.against.item(),
        f"{int((median <= MARGIN).sum())} of {median.size}",
        f"{int((median <= 1).sum())}",
        wise_map.stated_mean(median),
        f"{float(median.max()):.3g}",
        f"{float(final.max()):.3g}",
        f"{int((means <= MARGIN).sum())}",
        wise_map.stated_mean(means),
        f"{float(means.max()):.3g}",
    ]


def _explanations(dataset) -> list[str]:
    """Say what a ratio is, and what the algorithms spent."""
    means = dataset[["mean_power_mean", "reports_mean"]].sel(step_size=STEP_SIZE).mean("round")
    spent = []
    for name in dataset.algorithm.values:
        power, scalars = means.sel(algorithm=name).median().values()
        spent.append(f"{name} {float(power):.2g} and {float(scalars):g}")
    return [
        "Medians: a regime's ratio is the median over data draws of WISE's mean gap over that of "
        f"the best competitor. WISE uses η = {STEP_SIZE:g} everywhere. Unless they have the same "
        "step size, competitors choose in hindsight, for each regime and draw, the best of "
        f"{', '.join(f'{x:g}' for x in wise_map.STEP_SIZES)}, and the better of last model and "
        "weighted average. Means: WISE's mean gap over all draws of a regime over that of the one "
        "best competitor. Geometric means leave out ratios of 0, where all competitors diverged, "
        "and of ∞, where WISE did, and say how many.",
        f"At η = {STEP_SIZE:g}, mean power on the model block over P (median over all regimes and "
        f"draws) and coded scalars per user and round: {'; '.join(spent)}.",
    ]


def _details(ratios) -> list[str]:
    """Say where one comparison is worst, what is undecided, and how it goes over the rounds."""
    name, final, course = ratios.against.item(), ratios.isel(round=-1), ratios.median("draw")
    shares = (course <= MARGIN).mean(REGIME)
    by_round = [f"{float(share):.0%} after {share['round'].item()}" for share in shares]
    return [
        f"Worst against {name}: {_largest(course.isel(round=-1))}. Of single draws "
        f"{int((final > MARGIN).sum())} of {final.size} lie above {MARGIN:g}, the worst "
        f"{_largest(final)}. Undecided, as the 95 % interval of the median contains 1 or there are "
        f"too few draws: {wise_map.undecided(final)} of {course.isel(round=-1).size} regimes.",
        f"Share of regimes at or below {MARGIN:g} against {name}, by round: {', '.join(by_round)}.",
    ]


def _largest(ratios) -> str:
    """Say how large the largest ratio is, and in which regime."""
    at = ratios.isel(ratios.argmax(list(ratios.dims)))
    where = f"{at.snr_db.item():g} dB, spreads {at.spread.item()}, {at['shape'].item()}"
    return f"{at.item():.3g} at {where}"
