"""What do the field's methods reach for equal channel uses at one peak power, each tuned?

    jaxota run benchmarks/methods/zoo.py [--trials 4] [--set draws=8]

The data and the noise of fig1, static and over Rayleigh fading with truncated inversion. Every
method keeps to the peak power P in every round, and takes as many rounds as fit into the same
number of channel uses. Its step size and, if it has one, a number of its own are chosen on design
draws of the data; all that is shown comes from other draws.
"""

import jax
import matplotlib
import numpy as np
import optax
import pandas
from matplotlib.figure import Figure

import jaxota as jo

DESIGN, FIRST_SHOWN = range(4), 1000  # data draws to tune on; those to show begin here
USES, ROUNDS = 600, 120  # 60 rounds of d = 10 symbols; the most rounds that any method takes
STEP_SIZES = (0.001, 0.003, 0.01, 0.03)
OWN = {  # three values of every method's own number, swept in step
    "compress.share": (0.1, 0.3, 0.8),
    "compress.scale": (1.0, 3.0, 10.0),
    "compress.step": (0.03, 0.1, 0.3),
    "local.penalty": (0.3, 1.0, 3.0),
    "server.penalty": (0.3, 1.0, 3.0),
    "server.step_size": (0.03, 0.1, 0.3),
}
RULE = {"step_size": 1e-2, "steps": 10, "batch": 10, "precode": jo.Online()}
STATIC = {
    "COTAF": jo.cotaf(**RULE),
    "COTAF, James-Stein": jo.cotaf(**RULE, estimate=jo.JamesStein()),
    "COBAAF": jo.cobaaf(**RULE, estimate=jo.JamesStein()),
    "WISE": jo.wise(1e-2, 10, 10),
    "top-k": jo.cotaf(**RULE, compress=jo.TopK(0.3)),
    "A-DSGD": jo.cotaf(**RULE | {"precode": jo.FullPower()}, compress=jo.Projected(6, share=0.3)),
    "OBDA": jo.cotaf(**RULE, compress=jo.OneBit(0.01)),
    "directions": jo.cotaf(**RULE, compress=jo.Directions(5)),
    "FedDyn": jo.feddyn(**RULE, penalty=1.0),
    "momentum": jo.cotaf(**RULE, server=optax.sgd(1.0, momentum=0.5, nesterov=True)),
    "ADOTA": jo.cotaf(**RULE, server=jo.Adota(0.1, alpha=2.0)),
    "median of 3 groups": jo.cotaf(**RULE, compress=jo.GroupMedian(3)),
}
OWN_OF = {"top-k": "compress.share", "A-DSGD": "compress.scale", "OBDA": "compress.step"}
OWN_OF |= {"FedDyn": "local.penalty", "ADOTA": "server.step_size"}
ANSWERS = {
    "GBMA (phase only)": jo.rayleigh(answer=jo.PhaseOnly(mean_gain=np.sqrt(np.pi) / 2)),
    "optimal power": jo.rayleigh(answer=jo.OptimalPower()),
}
TITLES = {"static": "static channel", "rayleigh": "Rayleigh fading, truncated inversion"}


@jo.experiment("the field's methods at one peak power: gap against channel uses and energy")
def zoo(run, seed: int = 0, trials: int = 4, draws: int = 8) -> jo.Report:
    shown = range(FIRST_SHOWN, FIRST_SHOWN + draws)
    curves = {
        "static": tuned(run(study("zoo-static", STATIC, None, shown, seed, trials))),
        "rayleigh": tuned(run(study("zoo-rayleigh", STATIC, jo.rayleigh(), shown, seed, trials))),
    }
    for label, fading in ANSWERS.items():
        name = f"zoo-{label.split()[0].lower()}"
        alone = {label: STATIC["COTAF"]}
        curves["rayleigh"] |= tuned(run(study(name, alone, fading, shown, seed, trials)))
    rows = [
        {"channel": k} | row for k, of in curves.items() for row in map(in_numbers, of.values())
    ]
    table = pandas.DataFrame(rows)
    return jo.Report(
        name="zoo",
        caption=f"zoo: gaps after {USES} channel uses at one peak power, 10 dB per vector, data of "
        f"fig1, tuned on {len(DESIGN)} data draws and shown on {draws} others, {trials} trials "
        f"each, seed {seed}",
        table=[
            list(table),
            *(
                [f"{x:.3g}" if isinstance(x, float) else str(x) for x in row]
                for row in table.itertuples(index=False)
            ),
        ],
        remarks=[
            "gap: median over the draws that are shown, of means over trials; low and high are its "
            "95 % interval. diverged: draws on which a trial left the finite numbers.",
            "A-DSGD and directions send about half as many symbols as the model has parameters. A "
            "sum of 20 users' updates of 10 parameters is not sparse: A-DSGD recovers nothing, and "
            "its errors grow until they leave the picture.",
            "OBDA and ADOTA take steps of a length of their own, also near the optimum; a schedule "
            "would help them, and is not tuned here.",
        ],
        dataset=table.to_xarray(),
        csv=table,
        figure=lambda: picture(curves),
        digits=6,
    )


def study(name, algorithms, fading, shown, seed, trials) -> jo.Study:
    """All methods with every step size and own number, on draws to tune on and to show."""
    every = [*DESIGN, *shown]
    own = {k: v for k, v in OWN.items() if any(_has(a, k) for a in algorithms.values())}
    over = jo.grid(**{"local.step_size": STEP_SIZES})
    over *= jo.axis("own", own, [0, 1, 2]) if own else jo.grid()
    return jo.Study(
        algorithms,
        jo.Channel(snr_db=10.0, **({"fading": fading} if fading else {})),
        jo.tasks.synthetic_regression(jax.random.key(0), users=20, samples=100, dim=10),
        ROUNDS,
        trials,
        over * jo.axis("draw", {"task.key": every}, every),
        key=seed,
        keep="mean",
        name=name,
    )


def _has(algorithm, path):
    stage, field = path.split(".")
    return hasattr(getattr(algorithm, stage), field)


def tuned(dataset):
    """Return of each method the numbers chosen, and its curves on the draws that are shown."""
    found, data = {}, dataset.rename({"local.step_size": "step_size"})
    if "own" not in data.dims:
        data = data.expand_dims(own=[0])
    for name in data.algorithm.values:
        one = data.sel(algorithm=name).transpose("step_size", "own", "draw", ...)
        uses, energy = (one[f"{k}_mean"].cumsum("round").values for k in ("uses", "energy"))
        rounds = int(min(ROUNDS, USES // uses[0, 0, 0, 0]))
        complete = (one.used == one.trials).values[..., None]
        gap = np.where(complete & np.isfinite(one.gap_mean.values), one.gap_mean.values, np.inf)
        final = gap[..., rounds - 1]
        score = np.log(final[:, :, : len(DESIGN)]).mean(-1)
        at = np.unravel_index(np.argmin(score), score.shape)
        own = OWN[OWN_OF[str(name)]][at[1]] if name in OWN_OF else None
        found[str(name)] = {
            "method": str(name),
            "step size": STEP_SIZES[at[0]],
            "own number": "" if own is None else f"{OWN_OF[str(name)].split('.')[1]} {own:g}",
            "gap": gap[at][len(DESIGN) :, :rounds],
            "uses": uses[at][0, :rounds],
            "energy": energy[at][len(DESIGN) :, :rounds].mean(0),
        }
    return found


def in_numbers(found):
    """Return a row of the table."""
    last = found["gap"][:, -1]
    interval = jo.stats.median(last)
    return {
        "method": found["method"],
        "step size": found["step size"],
        "own number": found["own number"],
        "rounds": len(found["uses"]),
        "energy": float(found["energy"][-1]),
        "gap": float(np.median(last)),
        "low": float(interval.low),
        "high": float(interval.high),
        "diverged": int((~np.isfinite(last)).sum()),
    }


def picture(curves) -> Figure:
    """Draw medians over draws against channel uses and energy, static and fading."""
    style = jo.style
    names = dict.fromkeys(name for of in curves.values() for name in of)
    looks = {  # as many as there are: seven colours, whole and dashed
        name: (style.COLOURS[n % 7], ("-", (0, (3, 1)))[n // 7 % 2], style.MARKERS[n % 7])
        for n, name in enumerate(names)
    }
    start = max(np.median(found["gap"][:, 0]) for found in curves["static"].values())
    with matplotlib.rc_context(style.rc_params()):
        size = style.width(2), 6.2 if style.on_paper() else 5.2
        figure = Figure(figsize=size, dpi=300, layout="constrained")
        panels = figure.subplots(2, 2, sharey=True)
        for column, (channel, of) in enumerate(curves.items()):
            for axes, against in zip(panels[:, column], ("uses", "energy"), strict=True):
                for name, found in of.items():
                    (colour, dash, marker), x = looks[name], found[against]
                    median = np.median(found["gap"], 0)
                    axes.plot(x, median, color=colour, ls=dash, label=name)
                    axes.plot(x[-1:], median[-1:], marker, color=colour)
                axes.set_yscale("log")
                axes.set_ylim(top=2.0 * start)  # a method that climbs beyond leaves the picture
                axes.set_xlabel(style.SPENT[against])
            panels[0, column].set_xlim(left=0)
            panels[1, column].set_xscale("log")
            panels[0, column].set_title(TITLES[channel], fontsize=8)
        for axes in panels[:, 0]:
            axes.set_ylabel(style.LABELS["gap"])
        handles, names = style.legend_entries(panels.ravel())
        figure.legend(handles, names, loc="outside lower center", ncols=4)
    return figure
