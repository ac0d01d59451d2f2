"""How do servers fare as the tails of the interference grow heavier?

    jaxota run benchmarks/methods/heavy_tails.py [--trials 8] [--set draws=8]

COTAF on the data of fig1 over α-stable interference of fixed scale: the plain server, momentum
(AGMA), and ADOTA, which knows α. Rates are chosen for each α on design draws of the data; what is
shown comes from other draws. Medians over trials and draws: a mean need not exist.
"""

import jax
import matplotlib
import numpy as np
import optax
import pandas
from matplotlib.figure import Figure

import jaxota as jo

DESIGN, FIRST_SHOWN, ROUNDS = range(4), 1000, 60
ALPHAS = (1.1, 1.3, 1.5, 1.7, 2.0)
RATES = {"local.step_size": (0.001, 0.003, 0.01), "server.step_size": (0.03, 0.1, 0.3)}
RULE = {"step_size": 1e-2, "steps": 10, "batch": 10, "precode": jo.Online()}
SERVERS = {
    "COTAF": jo.cotaf(**RULE),
    "momentum": jo.cotaf(**RULE, server=optax.sgd(1.0, momentum=0.5, nesterov=True)),
    "ADOTA": jo.cotaf(**RULE, server=jo.Adota(0.1, alpha=1.5)),
}


@jo.experiment("servers under interference with heavy tails, against the tail index")
def heavy_tails(run, seed: int = 0, trials: int = 8, draws: int = 8) -> jo.Report:
    data, rows = run(study(range(FIRST_SHOWN, FIRST_SHOWN + draws), seed, trials)), []
    last = data.gap.isel(evaluation=-1).transpose("algorithm", "alpha", "rate", "own", "draw", ...)
    last = np.nan_to_num(last.values, nan=np.inf)
    split = len(DESIGN)
    for name, by_alpha in zip(SERVERS, last, strict=True):
        for alpha, gaps in zip(ALPHAS, by_alpha, strict=True):
            score = np.median(gaps[:, :, :split].reshape(*gaps.shape[:2], -1), -1)
            at = np.unravel_index(score.argmin(), score.shape)
            quartiles = np.quantile(gaps[at][split:], (0.5, 0.25, 0.75))
            own = f"{RATES['server.step_size'][at[1]]:g}" if name == "ADOTA" else ""
            rows.append([name, alpha, RATES["local.step_size"][at[0]], own, *quartiles])
    columns = ["server", "α", "step size", "server's step", "gap", "quarter", "three quarters"]
    table = pandas.DataFrame(rows, columns=columns)
    return jo.Report(
        name="heavy_tails",
        caption=f"heavy_tails: gaps after {ROUNDS} rounds over α-stable interference, 10 dB per "
        f"vector, data of fig1, tuned on {split} data draws and shown on {draws} others, {trials} "
        f"trials each, seed {seed}",
        table=[
            columns,
            *([f"{x:.3g}" if isinstance(x, float) else str(x) for x in r] for r in rows),
        ],
        remarks=["gap: median over trials and draws, with its quartiles."],
        dataset=table.to_xarray(),
        csv=table,
        figure=lambda: picture(table),
        digits=6,
    )


def study(shown, seed, trials) -> jo.Study:
    """Every server at every tail index and rate; ADOTA's α is that of the noise."""
    every = [*DESIGN, *shown]
    return jo.Study(
        SERVERS,
        jo.Channel(snr_db=10.0, noise=jo.Stable(2.0)),
        jo.tasks.synthetic_regression(jax.random.key(0), users=20, samples=100, dim=10),
        ROUNDS,
        trials,
        jo.axis("alpha", {"noise.alpha": ALPHAS, "server.alpha": ALPHAS}, ALPHAS)
        * jo.axis("rate", {"local.step_size": RATES["local.step_size"]}, [0, 1, 2])
        * jo.axis("own", {"server.step_size": RATES["server.step_size"]}, [0, 1, 2])
        * jo.axis("draw", {"task.key": every}, every),
        key=seed,
        every=ROUNDS,
        name="heavy-tails",
    )


def picture(table) -> Figure:
    """Draw medians and quartiles against α."""
    style = jo.style
    with matplotlib.rc_context(style.rc_params()):
        figure = Figure(figsize=(style.width(1), 2.6), dpi=300, layout="constrained")
        axes = figure.subplots()
        for name, look in style.looks(SERVERS).items():
            rows = table[table.server == name]
            axes.plot(
                rows["α"], rows.gap, marker=look.marker, color=look.colour, ls=look.dash, label=name
            )
            axes.fill_between(
                rows["α"], rows.quarter, rows["three quarters"], color=look.colour, alpha=0.15, lw=0
            )
        axes.set_yscale("log")
        axes.set_xlabel(r"tail index $\alpha$ of the interference (2: Gaussian)")
        axes.set_ylabel(style.LABELS["gap"])
        axes.legend()
    return figure
