"""On how many data draws does each claim on regression hold in expectation, round by round?

    jaxota run benchmarks/paper/exact_claims.py [--set draws=1000] [--set draws_200=50]

`draws` data sets of N = 20 users, `draws_200` of N = 200.

`jo.exact` computes the expected gap of every algorithm after every round, as with infinitely many
trials. A share of draws is then free of Monte Carlo noise: its interval is of the draws alone.
Gains are those of the offline precoder; the paper does not say after how many rounds it compares.
"""

import concurrent.futures
import os

import jax
import matplotlib
import numpy as np
import pandas
import xarray
from claim_parts import PARTS

import jaxota as jo

ROUNDS = (5, 10, 20, 30, 60)  # of the table
CHUNK = 20  # draws in one program
DRAWS_200 = 50  # draws where N = 200, each of the work of ten
SAMPLED = 50  # draws of claims.py, the first ones here
TITLES = {  # of the panels
    "1": "BAAF < COTAF < noisy",
    "2": "COBAAF < BAAF",
    "3": "COBAAF near SCAFFOLD",
    "4": "nearer with N = 200",
    "5": "better with K = 20",
}


@jo.experiment("on how many data draws each claim on regression holds in expectation, by round")
def exact_claims(run, seed=0, draws=1000, draws_200=DRAWS_200):
    """Compute all expected gaps, and the share of draws on which each part of a claim holds."""
    parts = [part for part in PARTS if part.unit != "points"]
    counts = {"fig1": draws, "fig3": draws, "fig2": draws_200}
    progress = getattr(run, "progress", lambda *_: None)
    frame, holds, gaps = expected_shares(parts, seed, counts, progress)
    return jo.Report(
        name="exact_claims",
        caption=f"Claims 1 to 5 of the paper in expectation, SNR 10 dB per vector, seed {seed}: "
        f"{draws} data draws, {draws_200} where N = 200",
        table=table(parts, frame),
        remarks=[
            "A draw counts where the expected gaps after that round are in the claimed order. "
            "± is half of the exact 95 % interval of the share.",
            "Offline precoder, plans of infinitely many calibration runs.",
            _on_sampled_draws(parts, holds),
        ],
        dataset=_dataset(gaps),
        csv=frame,
        figure=lambda: draw(parts, frame),
    )


def expected_shares(parts, seed, counts, progress):
    """Rows of the CSV, whether each part holds [draw, round], and the gaps that say so.

    `counts` is the number of draws of each figure.
    """
    sources, gaps = dict.fromkeys(source for part in parts for source in part.sources), {}
    for figure in counts:
        labels = [label for name, label in sources if name == figure]
        if labels:
            found = expected_gaps(figure, labels, seed, counts[figure], progress)
            gaps |= {(figure, label): values for label, values in found.items()}
    holds = {part.name: _holds(part, gaps) for part in parts}
    return shares(parts, holds), holds, gaps


def expected_gaps(figure, labels, seed, draws, progress):
    """Expected gaps [draw, round] of each algorithm at the settings of a figure."""
    study = jo.figures.FIGURES[figure].study(seed)
    keys = jax.vmap(lambda number: jax.random.fold_in(study.task.key, number))(np.arange(draws))

    def chunk(first):
        # The last chunk is filled up, so that it is no other program.
        chosen = keys[np.minimum(np.arange(first, first + CHUNK), draws - 1)]
        task, plans, gaps = study.task.replace(key=chosen), {}, {}
        for label in labels:
            algorithm, plan = study.algorithms[label], None
            if algorithm.needs:  # algorithms with one local rule share their plan
                rule = algorithm.local.controlled
                if rule not in plans:
                    plans[rule] = jo.exact_plan(algorithm, task, study.rounds)
                plan = plans[rule]
            gaps[label] = jo.exact(algorithm, study.channel, task, study.rounds, plan=plan).gap
        return gaps

    # The products of one program are too small for two cores: each core has its own chunk.
    firsts, found = range(0, draws, CHUNK), [chunk(0)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for gaps in pool.map(chunk, firsts[1:]):
            found.append(gaps)
            progress(f"{figure}, {draws} draws", CHUNK * len(found), draws)
    return {label: np.concatenate([gaps[label] for gaps in found])[:draws] for label in labels}


def _holds(part, gaps):
    """Whether a part holds in expectation [draw, round]."""
    count = min(len(gaps[source]) for source in part.sources)
    return part.holds(part.effects(lambda figure, label, _: gaps[figure, label][:count]))


def _on_sampled_draws(parts, holds):
    """Say on how many of the draws of claims.py each part holds after the last round."""
    counts = {part.name: holds[part.name][:SAMPLED, -1] for part in parts}
    words = [f"({name}) {own.sum()} of {len(own)}" for name, own in counts.items()]
    return f"On the draws of claims.py, after the last round: {', '.join(words)}."


def shares(parts, holds):
    """Rows of the CSV: the share of draws of every part after every round."""
    rows = []
    for part in parts:
        for r, column in enumerate(holds[part.name].T, 1):
            between = jo.stats.share(int(column.sum()), len(column))
            rows.append(
                {
                    "part": part.name,
                    "words": part.words,
                    "round": r,
                    "draws": len(column),
                    "holds": int(column.sum()),
                    "share": column.mean(),
                    "ci_low": between.low,
                    "ci_high": between.high,
                    "verdict": jo.stats.verdict(int(column.sum()), len(column)),
                }
            )
    return pandas.DataFrame(rows)


def table(parts, frame):
    """Shares after some rounds, and the verdict after the last of them."""
    last = frame["round"].max()
    rounds = [r for r in ROUNDS if r <= last]
    rows = [["claim", *(f"R = {r}" for r in rounds), f"R = {rounds[-1]}, in words"]]
    for part in parts:
        own = frame[frame.part == part.name].set_index("round")
        cells = [
            f"{100 * one.share:.1f} ± {50 * (one.ci_high - one.ci_low):.1f} %"
            for one in own.loc[rounds].itertuples()
        ]
        rows.append([f"({part.name}) {part.words}", *cells, own.verdict[rounds[-1]]])
    return rows


def _dataset(gaps):
    """Expected gaps [draw, round] of every figure and algorithm; a draw is missing where NaN."""
    arrays = {
        f"{figure} {label}": xarray.DataArray(
            values,
            dims=("draw", "round"),
            coords={"draw": np.arange(len(values)), "round": 1 + np.arange(values.shape[1])},
        )
        for (figure, label), values in gaps.items()
    }
    return xarray.Dataset(arrays)


def draw(parts, frame):
    """Draw the share of draws against the round, a panel for each claim."""
    claims = list(dict.fromkeys(part.claim for part in parts))
    looks = jo.style.looks(map(str, range(3)))
    with matplotlib.rc_context(jo.style.rc_params()):
        figure, panels = jo.style.subplots(len(claims), 2.4, sharex=True)
        for axes, claim in zip(panels, claims, strict=True):
            own = [part for part in parts if part.claim == claim]
            for part, look in zip(own, looks.values(), strict=False):
                rows = frame[frame.part == part.name]
                values = (100 * rows[name].to_numpy() for name in ("share", "ci_low", "ci_high"))
                band = jo.stats.Interval(*values, used=len(rows), trials=len(rows))
                rounds = rows["round"].to_numpy()
                jo.style.curve(axes, look, f"({part.name})", rounds, band, -np.inf)
            axes.axhline(50, color="black", linewidth=0.5)
            axes.set_ylim(-3, 103)
            axes.legend(loc="best", handlelength=2.5)
            jo.style.label_axes(axes, "round $R$", "")
            axes.set_title(f"{claim}: {TITLES[claim]}", fontsize=7)
        panels[0].set_ylabel("share of data draws (%)")
    return figure
