"""Does WISE, at one setting, have the smallest final gap in every regime of a map?

jaxota run benchmarks/wise/maps.py:wise
jaxota run benchmarks/wise/maps.py:offmap
jaxota run benchmarks/wise/maps.py:rivals
"""

import map_figure
import numpy as np
import optax
import pandas
import wise_map
import xarray
from wise_map import LOCAL, REGIME, STEP_SIZE

import jaxota as jo

MARGIN = 1.05  # ratios up to here count as no worse
SAME = "same step size"  # competitors of all other groups choose theirs in hindsight


def baselines() -> dict[str, jo.Algorithm]:
    """Return the paper's algorithms, at the same peak power as WISE."""
    return {
        "noisy FedAvg": jo.noisy_fedavg(**LOCAL),
        "COTAF": jo.cotaf(**LOCAL, precode=jo.Online()),
        "BAAF": jo.baaf(**LOCAL, precode=jo.Online()),
        "COBAAF": jo.cobaaf(**LOCAL, precode=jo.Online()),
    }


def baseline_groups() -> dict[str, dict[str, jo.Algorithm]]:
    """Return the baselines under both rules for their step sizes."""
    return {SAME: baselines(), "best in hindsight": baselines()}


def rival_groups() -> dict[str, dict[str, jo.Algorithm]]:
    """Return baselines with coded means, baselines with more power, and server optimisers."""
    precoded = {name: each for name, each in baselines().items() if name != "noisy FedAvg"}
    optimisers = {
        "FedAvgM": optax.sgd(0.1, momentum=0.9),
        "FedAdam": optax.adam(0.1, b2=0.99, eps=1e-3),
        "FedYogi": optax.yogi(0.1, b2=0.99, eps=1e-3),
        "FedAdagrad": optax.adagrad(0.3, eps=1e-3),
        "FedAdam, cosine": optax.adam(optax.cosine_decay_schedule(0.3, 60), b2=0.99),
        "FedAvg, cosine": optax.sgd(optax.cosine_decay_schedule(1.0, 60)),
    }
    coded = {f"{k}, coded means": v.replace(compress=jo.Centred()) for k, v in precoded.items()}
    power = {f"{k}, mean power P": v.replace(precode=jo.MeanPower()) for k, v in precoded.items()}
    server = {
        f"COTAF, {name}": jo.cotaf(**LOCAL, precode=jo.Online(), server=optimiser)
        for name, optimiser in optimisers.items()
    }
    groups = {"coded means": coded, "mean power P": power, "server optimisers": server}
    return groups | {"all": coded | power | server}


@jo.experiment("WISE beside the best of noisy FedAvg, COTAF, BAAF and COBAAF in 120 regimes")
def wise(run, seed: int = 0, trials: int = 8) -> jo.Report:
    return _compare(run, "wise", wise_map.MAP, baseline_groups(), seed, trials)


@jo.experiment("WISE beside the baselines in 96 other regimes")
def offmap(run, seed: int = 0, trials: int = 8) -> jo.Report:
    return _compare(run, "offmap", wise_map.OFF_MAP, baseline_groups(), seed, trials)


@jo.experiment("WISE beside baselines with coded means, more power, or server optimisers")
def rivals(run, seed: int = 0, trials: int = 8) -> jo.Report:
    return _compare(run, "rivals", wise_map.MAP, rival_groups(), seed, trials)


def _compare(run, name, regimes, groups, seed, trials) -> jo.Report:
    """Report WISE's gap over that of the best of each group of competitors."""
    draws, algorithms = wise_map.draws(seed), {"WISE": jo.wise(**LOCAL)}
    for group in groups.values():
        algorithms |= group
    study = wise_map.study(name, regimes, algorithms, draws, seed, trials, wise_map.STEP_SIZES)
    dataset = run(study)
    by_group = [ratio(dataset, list(group), label != SAME) for label, group in groups.items()]
    ratios = xarray.concat(by_group, pandas.Index(groups, name="against"))
    # Full gradients, a batch of None, are no coordinate of the dataset.
    batches = ["all" if batch is None else batch for *_, batch in regimes.shapes.values()]
    ratios = ratios.assign_coords(batch=("shape", batches)).load()
    fields = ["users", "steps", "dim", "batch", "data_spread", "model_spread", "snr_db", "draw"]
    best = "its rivals" if name == "rivals" else "the baselines"
    columns = "≤ 1", "geometric mean", "worst regime", "worst draw"
    return jo.Report(
        name=name,
        caption=f"{name}: the final gap of WISE over that of the best of {best}, "
        f"{ratios[0, ..., 0, 0].size} regimes of synthetic regression, {regimes.rounds} rounds, "
        f"{len(draws)} new data draws, {trials} trials each, seed {seed}",
        table=[["against", f"≤ {MARGIN:g}", *columns], *map(_row, ratios.isel(round=-1))],
        remarks=[*_explanations(dataset), *(line for each in ratios for line in _details(each))],
        dataset=ratios.drop_vars("batch").to_dataset(name="ratio"),
        csv=ratios.to_dataframe("ratio").reset_index()[["against", *fields, "round", "ratio"]],
        figure=lambda: map_figure.draw(
            ratios,
            f"WISE over the best of {best}: median over {len(draws)} data draws, {trials} trials "
            "each; regimes above 1 are framed",
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
    average = dataset.average_gap_mean.sel(algorithm=against)
    average = average.where(np.isfinite(others.isel(round=-1)), np.inf)
    last = others["round"] == others["round"][-1]
    others = others.where(~last, np.minimum(others, average.broadcast_like(others)))
    return ours / others.min(["algorithm", "step_size"])


def _row(final) -> list[str]:
    """Return the table's row of one comparison's final ratios [regime…, draw]."""
    median = final.median("draw")
    return [
        final.against.item(),
        f"{int((median <= MARGIN).sum())} of {median.size}",
        f"{int((median <= 1).sum())}",
        f"{wise_map.geometric_mean(median):.3g}",
        f"{float(median.max()):.3g}",
        f"{float(final.max()):.3g}",
    ]


def _explanations(dataset) -> list[str]:
    """Say what a ratio is, and what the algorithms spent."""
    means = dataset[["mean_power_mean", "reports_mean"]].sel(step_size=STEP_SIZE).mean("round")
    spent = []
    for name in dataset.algorithm.values:
        power, scalars = means.sel(algorithm=name).median().values()
        spent.append(f"{name} {float(power):.2g} and {float(scalars):g}")
    return [
        "A regime's ratio is the median over data draws of WISE's mean gap over that of the best "
        f"competitor. WISE uses η = {STEP_SIZE:g} everywhere. Unless they have the same step size, "
        "competitors choose in hindsight, for each regime and draw, the best of "
        f"{', '.join(f'{x:g}' for x in wise_map.STEP_SIZES)}, and the better of last model and "
        "weighted average.",
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
