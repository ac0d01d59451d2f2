"""On how many data draws does each claim of the paper hold?

    jaxota run benchmarks/paper/claims.py [--set only=1,2,3] [--set draws=10] [--trials 4]
    jaxota run benchmarks/paper/claims.py --set exact=1000

Runs the figures of the paper, with offline and online precoders, on many independent data draws,
and reads them after several rounds, as the paper does not say after how many it compares. Without
--trials and draws: 50 draws × 20 trials of the regression, 12 × 5 of the images. `exact` adds a
column of the claims on regression: the share of so many draws on which the expected order holds.
"""

import claims_page
import claims_plot
import exact_claims
import numpy as np
import pandas
import xarray
from claim_parts import LINES, PARTS, PRECODERS
from data_draws import NoisePerDraw, data_draws, finite_mean

import jaxota as jo

LEVEL = 0.95
SIMULTANEOUS = 1 - (1 - LEVEL) / LINES  # Bonferroni: all intervals together hold with LEVEL
FIGURES = {"regression": ("fig1", "fig2", "fig3"), "images": ("fig4", "fig5")}
# With fewer than 11 draws no verdict could survive the correction for all lines.
DRAWS, TRIALS = {"regression": 50, "images": 12}, {"regression": 20, "images": 5}
EVERY = {"regression": 5, "images": 10}  # rounds from one reading to the next
CALIBRATION_TRIALS = {"regression": 20, "images": 10}
PRECODED = "COTAF", "BAAF", "COBAAF"


@jo.experiment("on how many data draws each claim of the paper holds")
def claims(run, seed=0, trials=None, draws=None, only="", dataset=None, data_dir=None, exact=0):
    """Run the figures that the chosen claims are about, and judge every part of these claims."""
    parts = chosen(only)
    images, remark = chosen_images(parts, dataset, data_dir)
    needed = {figure for part in parts for figure, _ in part.sources}
    rows, effects, scores = [], {}, {}
    for kind, names in FIGURES.items():
        figures = [name for name in names if name in needed]
        if not figures:
            continue
        options = images if kind == "images" else {}
        study = figures_study(kind, figures, seed, trials, draws, **options)
        scores[kind] = scores_by_round(run(study))
        data = study.task.title if kind == "images" else "synthetic regression"
        common = {"data": data, "trials": study.trials, "seed": seed}
        common["calibration_trials"] = study.calibration_trials
        for part in (p for p in parts if p.figure in names):
            for precoder in PRECODERS:
                for r in scores[kind]["round"].values:
                    effect, power = effect_of(part, precoder, scores[kind].sel(round=r))
                    rows.append(line(part, precoder, effect, power, round=int(r), **common))
                effects[part.name, precoder] = effect  # of the last round
    frame = pandas.DataFrame(rows)
    if exact:
        progress = getattr(run, "progress", lambda *_: None)
        frame = with_expected(frame, parts, seed, exact, progress)
    numbers = ", ".join(dict.fromkeys(part.claim for part in parts))
    return jo.Report(
        name="claims",
        caption=f"Claim{'s' * (len(numbers) > 1)} {numbers} of the paper, at the settings of its "
        f"figures, SNR 10 dB per vector, seed {seed}",
        table=claims_page.table(frame),
        remarks=[*claims_page.legend(claims_page.final(frame)), *([remark] if remark else [])],
        dataset=to_dataset(effects, scores),
        csv=frame,
        figure=lambda: claims_plot.draw(frame, effects),
        markdown=claims_page.markdown(frame),
    )


def with_expected(frame, parts, seed, draws, progress):
    """Add shares of draws in expectation, for offline precoders on regression, to the rows."""
    parts = [part for part in parts if part.unit != "points"]
    counts = {"fig1": draws, "fig3": draws, "fig2": min(draws, exact_claims.DRAWS_200)}
    shares, *_ = exact_claims.expected_shares(parts, seed, counts, progress)
    names = {"draws": "expected_draws", "share": "expected", "ci_low": "expected_low"}
    names |= {"ci_high": "expected_high", "part": "part", "round": "round"}
    shares = shares[list(names)].rename(columns=names).round(6).assign(precoder="offline")
    return frame.merge(shares, how="left", on=["part", "round", "precoder"])


def chosen(only):
    """Parts of the claims that `only` names, such as "1,2"; by default all parts."""
    known = list(dict.fromkeys(part.claim for part in PARTS))
    wanted = [word.strip() for word in only.split(",")] if only else known
    for word in wanted:
        if word not in known:
            raise jo.InputError(f"only must be of {', '.join(known)}, with commas, got {word!r}")
    return [part for part in PARTS if part.claim in wanted]


def chosen_images(parts, dataset, data_dir):
    """Options of the tasks on images, and a remark if another dataset stands in for MNIST."""
    if not any(part.unit == "points" for part in parts):
        for name, value in {"dataset": dataset, "data_dir": data_dir}.items():
            if value is not None:
                raise jo.InputError(f"{name} is for claims on images, and none was chosen")
        return {}, ""
    if dataset is None and data_dir is None:
        name, remark = jo.tasks.images_at_hand()
        return {"dataset": name}, remark
    return {"dataset": dataset or "mnist", "data_dir": data_dir}, ""


def figures_study(kind, figures, seed, trials=None, draws=None, **options):
    """Study of several figures, all algorithms with both precoders, on all data draws."""
    trials = TRIALS[kind] if trials is None else trials
    studies = [jo.figures.FIGURES[name].study(seed, trials=trials, **options) for name in figures]
    first = studies[0]
    # What differs between the figures becomes the axis "figure".
    if kind == "images":
        fields = {"partition": [study.task.partition for study in studies]}
    else:
        fields = {
            "users": [study.task.users for study in studies],
            "steps": [study.algorithms["COTAF"].local.steps for study in studies],
        }
    algorithms = {}
    for study in studies:
        algorithms |= {k: v for k, v in study.algorithms.items() if k not in algorithms}
    precoded = [name for name in PRECODED if name in algorithms]
    online = {f"{k}, online": algorithms[k].replace(precode=jo.Online()) for k in precoded}
    return first.replace(
        algorithms=algorithms | online,
        channel=first.channel.replace(noise=NoisePerDraw()),
        over=jo.axis("figure", fields, figures)
        * data_draws(first.task.key, DRAWS[kind] if draws is None else draws),
        every=EVERY[kind],
        calibration_trials=CALIBRATION_TRIALS[kind],
        keep="mean",
        name=f"claims-{kind}",
    )


def scores_by_round(dataset):
    """Scores, and the largest power ratio so far, [algorithm, figure, draw, round] where read."""
    power = dataset.power_mean
    if "control_power_mean" in dataset:
        power = np.fmax(power, dataset.control_power_mean)
    every = dataset.sizes["round"] // dataset.sizes["evaluation"]
    rounds = every * (1 + np.arange(dataset.sizes["evaluation"]))
    largest = power.reduce(np.maximum.accumulate, "round", keep_attrs=False)
    found = {"power_ratio": largest.isel(round=rounds - 1).assign_coords(round=rounds)}
    for score in dataset.attrs["scores"]:
        mean = finite_mean(dataset, score, np.nan if score == "accuracy" else np.inf)
        found[score] = mean.rename(evaluation="round").assign_coords(round=rounds)
    scores = xarray.Dataset(
        {name: values.reset_coords(drop=True) for name, values in found.items()}
    )
    return scores.load()


def effect_of(part, precoder, scores):
    """Effect of a part [draw], and the largest power ratio of the algorithms compared."""

    def at(figure, algorithm, name):
        if precoder == "online" and algorithm in PRECODED:
            algorithm = f"{algorithm}, online"
        return scores[name].sel(figure=figure, algorithm=algorithm).values

    powers = [float(np.median(at(*source, "power_ratio"))) for source in part.sources]
    return part.effects(at), max(powers)


def line(part, precoder, effects, power, data, round, trials, calibration_trials, seed):
    """One row of the CSV: a part under one precoder after one round, with its verdict."""
    count, draws = int(part.holds(effects).sum()), len(effects)
    numbers = {"share": count / draws}
    levels = {"": LEVEL, "_simultaneous": SIMULTANEOUS}
    shares = {suffix: jo.stats.share(count, draws, level) for suffix, level in levels.items()}
    for suffix, (low, high, _) in shares.items():
        numbers |= {f"share_low{suffix}": low, f"share_high{suffix}": high}
    numbers["median"] = float(np.median(effects))
    for suffix, level in levels.items():
        low, high, reached = jo.stats.median(effects, level)
        numbers |= {f"median_low{suffix}": low, f"median_high{suffix}": high}
        numbers[f"median_level{suffix}"] = reached
    numbers["power_ratio"] = power
    corrected = shares["_simultaneous"]
    return {
        "part": part.name,
        "claim": part.words,
        "precoder": precoder,
        "data": data,
        "round": round,
        "draws": draws,
        "trials": trials,
        "calibration_trials": calibration_trials,
        "unit": part.unit,
        "limit": part.limit,
        "holds_on": count,
        **{name: float(f"{value:.6g}") for name, value in numbers.items()},
        "verdict": jo.stats.verdict(count, draws, LEVEL),
        "open": "yes" if corrected.low <= 0.5 <= corrected.high else "no",
        "seed": seed,
    }


def to_dataset(effects, scores):
    """Effects [part, precoder, draw], and the scores that they were computed from."""
    parts = list(dict.fromkeys(name for name, _ in effects))
    values = np.full((len(parts), len(PRECODERS), max(map(len, effects.values()))), np.nan)
    for (name, precoder), effect in effects.items():
        values[parts.index(name), PRECODERS.index(precoder), : len(effect)] = effect
    coords = {"part": parts, "precoder": list(PRECODERS)}
    dataset = xarray.Dataset({"effect": (("part", "precoder", "draw"), values)}, coords)
    for kind, found in scores.items():
        names = [*found.data_vars, *found.dims]
        dataset = dataset.merge(found.rename({name: f"{kind}_{name}" for name in names}))
    return dataset
