"""Under which reading of the paper do its claims on regression hold together, and at which R?

    jaxota run benchmarks/paper/readings.py [--trials 10] [--set draws=40]

A reading settles what the paper leaves open: whether the prior is on weights or on updates, and the
power of the controls. One reading also departs from the paper, with an SNR of 5 dB in place of
10 dB; one was chosen by a design. The draws are new: no other study of the claims uses them, so
they chose none of these.
"""

import matplotlib
import numpy as np
import pandas
import xarray
from new_draws import FIRST, held_on_new_draws, in_words, together
from reproduction_design import REGRESSION
from reproduction_effects import readings as same_words

import jaxota as jo

_UPDATES = {"prior": "updates"}
_STRONG = {"control_power": "10 P"}
READINGS = {
    "ours: prior on weights": {},
    "weights, controls 10 P": _STRONG,
    "updates": _UPDATES,
    "updates, controls 10 P": _UPDATES | _STRONG,
    "updates, controls 10 P, 5 dB": _UPDATES | _STRONG | {"SNR": "5 dB per vector"},
    # Where an earlier design, on nine draws of its own, found all claims of fig1.
    "model spread 10, controls 10 P, batch 1": {"model_spread": "10", "batch": "1"} | _STRONG,
}
DRAWN_SINGLY = "updates, controls 10 P, 5 dB"
ROUNDS = (20, 60, 100)  # of the table
JOINT = {"fig1": ("fig1",), "figs 1-3": ("fig1", "fig2", "fig3")}


@jo.experiment("under which reading of the paper its claims on regression hold together")
def readings(run, seed=0, trials=10, draws=40):
    """Run all figures under every reading on new draws, and count single and joint claims."""
    family, held = REGRESSION, {}
    for name, changes in READINGS.items():
        found = held_on_new_draws(
            run, family, family.point(**changes), family.figures, seed, trials, draws
        )
        held[name] = _by_words(found) | {
            label: together(found, family, figures) for label, figures in JOINT.items()
        }
    return jo.Report(
        name="readings",
        caption=f"Claims 1 to 5 under readings of the paper: {draws} data draws that chose nothing "
        f"(from number {FIRST} on) × {trials} trials, SNR per vector, seed {seed}",
        table=table(rows(held)),
        remarks=[
            "Counts of draws on which a claim holds after R rounds. Of (3a) and (3b), (4a) and "
            "(4b), which read the same words, one is enough. [ ]: exact 95 % intervals of joint "
            "shares, not corrected for the number of rows.",
            "The paper gives an SNR of 10 dB, neither R nor the power of the controls, and puts "
            "the prior on the weights.",
        ],
        dataset=_dataset(held),
        csv=rows(held),
        figure=lambda: draw(held),
    )


def _by_words(found):
    """Whether a claim holds [draw, evaluation], parts that read the same words as one."""
    groups = same_words(REGRESSION.parts)
    return {
        group[0].name.rstrip("ab") if len(group) > 1 else group[0].name: np.any(
            [found[part.name] for part in group], 0
        )
        for group in groups
    }


def table(frame):
    """A row for each reading and R: counts of single claims, and joint counts with intervals."""
    singles = [name for name in frame.claim.unique() if name not in JOINT]
    cells = [["reading", "R", *singles, *(f"{name} jointly" for name in JOINT)]]
    shown = frame[frame["round"].isin(ROUNDS)]
    for (reading, r), own in shown.groupby(["reading", "round"], sort=False):
        at = {row.claim: row for row in own.itertuples()}
        counts = [str(at[name].holds_on) for name in singles]
        joint = [in_words(at[name].holds_on, at[name].draws) for name in JOINT]
        cells.append([reading, str(r), *counts, *joint])
    return cells


def rows(held):
    """Tidy rows of the CSV."""
    lines = []
    for reading, own in held.items():
        for name, values in own.items():
            for place, column in enumerate(values.T, 1):
                count, draws = int(column.sum()), len(column)
                low, high, _ = jo.stats.share(count, draws)
                numbers = place * REGRESSION.every, draws, count, count / draws, low, high
                lines.append([reading, name, *numbers])
    head = ["reading", "claim", "round", "draws", "holds_on", "share", "low", "high"]
    return pandas.DataFrame(lines, columns=head)


def _dataset(held):
    stacked = np.stack([np.stack(list(own.values())) for own in held.values()])
    claims = list(next(iter(held.values())))
    rounds = REGRESSION.every * (1 + np.arange(stacked.shape[-1]))
    coords = {"reading": list(held), "claim": claims, "round": rounds}
    return xarray.Dataset({"holds": (("reading", "claim", "draw", "round"), stacked)}, coords)


def draw(held):
    """Draw joint shares against R for every reading, and single shares under the last one."""
    frame = rows(held)
    last = DRAWN_SINGLY if DRAWN_SINGLY in held else next(iter(held))
    singles = [name for name in held[last] if name not in JOINT]
    panels = [
        *((f"{name} jointly", "claim", name, "reading", list(held)) for name in JOINT),
        (f"{last}:\nsingle claims", "reading", last, "claim", singles),
    ]
    with matplotlib.rc_context(jo.style.rc_params()):
        figure, axes = jo.style.subplots(3, 3.0, sharex=True)
        for panel, (title, fixed, value, lines, names) in zip(axes, panels, strict=True):
            looks = jo.style.looks(map(str, range(len(names))))
            for name, look in zip(names, looks.values(), strict=True):
                own = frame[(frame[fixed] == value) & (frame[lines] == name)]
                ends = (100 * own[end].to_numpy() for end in ("share", "low", "high"))
                band = jo.stats.Interval(*ends, used=len(own), trials=len(own))
                if fixed == "reading":  # seven bands would hide each other
                    band = jo.stats.Interval(band.mean, band.mean, band.mean, band.used, band.used)
                jo.style.curve(panel, look, name, own["round"].to_numpy(), band, -np.inf)
            panel.axhline(50, color="black", lw=0.6, ls="--")
            panel.set_ylim(-4, 104)
            jo.style.label_axes(panel, "round $R$", "")
            panel.set_title(title, fontsize=7)
        axes[0].set_ylabel("share of new data draws (%)")
        handles = axes[0].get_legend_handles_labels()
        figure.legend(
            *handles, loc="outside lower center", ncols=jo.style.columns(3, 1), fontsize=6
        )
        axes[2].legend(fontsize=5, loc="lower right", ncols=2)
    return figure
