"""What does privacy cost: the gap against ε, when the channel's noise is all that hides users?

    jaxota run benchmarks/methods/privacy.py [--trials 4] [--set draws=8] [--set delta=0.01]

Noisy FedAvg on the data of fig1 at 10 dB per vector. Users clip their updates to a bound and send
them with a constant gain, so that ε follows from gain·bound alone, whatever N. The bound is chosen
for each ε on design draws of the data; what is shown comes from other draws.
"""

import jax
import matplotlib
import numpy as np
import pandas
from matplotlib.figure import Figure

import jaxota as jo

DESIGN, FIRST_SHOWN, ROUNDS, USERS = range(4), 1000, 60, (20, 200)
LEVELS = tuple(float(f"{x:.3g}") for x in np.geomspace(0.004, 0.13, 6))  # gain·bound
BOUNDS = (0.1, 0.3, 1.0, 3.0)
POINTS = [(level, bound) for level in LEVELS for bound in BOUNDS]


@jo.experiment("the gap against ε, where the channel's noise alone protects users")
def privacy(run, seed: int = 0, trials: int = 4, draws: int = 8, delta: float = 0.01) -> jo.Report:
    shown = range(FIRST_SHOWN, FIRST_SHOWN + draws)
    data = run(study(shown, seed, trials))
    rho = np.cumsum([spent_by_round(level) for level in LEVELS], 1)[:, -1]
    epsilon = jo.privacy.epsilon(rho, delta)
    rows = []
    for users in USERS:
        one = data.isel(algorithm=0).sel(users=users).transpose("point", "draw", ...)
        gap = one.gap_mean.isel(evaluation=-1).values.reshape(len(LEVELS), len(BOUNDS), -1)
        best = np.log(gap[:, :, : len(DESIGN)]).mean(-1).argmin(1)
        for level, at in enumerate(best):
            last = gap[level, at, len(DESIGN) :]
            low, high, *_ = jo.stats.median(last)
            numbers = epsilon[level], BOUNDS[at], LEVELS[level] / BOUNDS[at]
            rows.append([users, *numbers, np.median(last), low, high])
    table = pandas.DataFrame(rows, columns=["users", "ε", "bound", "gain", "gap", "low", "high"])
    return jo.Report(
        name="privacy",
        caption=f"privacy: gaps after {ROUNDS} rounds against ε at δ = {delta:g}, a user replaced, "
        f"bounds tuned on {len(DESIGN)} data draws and shown on {draws} others, {trials} trials "
        f"each, seed {seed}",
        table=[list(table), *([f"{x:.3g}" for x in row] for row in table.to_numpy())],
        remarks=[
            "gap: median over draws of means over trials; low and high are its 95 % interval."
        ],
        dataset=table.to_xarray(),
        csv=table,
        figure=lambda: picture(table, delta),
        digits=6,
    )


def study(shown, seed, trials) -> jo.Study:
    """Every pair of gain·bound and bound, for both numbers of users."""
    every = [*DESIGN, *shown]
    fields = {
        "compress.bound": [bound for _, bound in POINTS],
        "precode.gain": [level / bound for level, bound in POINTS],
    }
    clipped = jo.noisy_fedavg(
        *(1e-2, 10, 10), precode=jo.Constant(1.0), compress=jo.NormBounded(1.0)
    )
    return jo.Study(
        {"noisy FedAvg": clipped},
        jo.Channel(snr_db=10.0),
        jo.tasks.synthetic_regression(jax.random.key(0), users=20, samples=100, dim=10),
        ROUNDS,
        trials,
        jo.grid(users=USERS)
        * jo.axis("point", fields, list(range(len(POINTS))))
        * jo.axis("draw", {"task.key": every}, every),
        key=seed,
        keep="mean",
        name="privacy",
    )


def spent_by_round(level):
    """Return what each round spends, (Δ/√ν)²/2 = (2·bound·gain)²/(2·sw2), with sw2 = P/10."""
    return np.full(ROUNDS, (2 * level) ** 2 / (2 * 0.1))


def picture(table, delta) -> Figure:
    """Draw medians and their intervals against ε, for both numbers of users."""
    style = jo.style
    with matplotlib.rc_context(style.rc_params()):
        figure = Figure(figsize=(style.width(1), 2.6), dpi=300, layout="constrained")
        axes = figure.subplots()
        looks = style.looks([f"N = {users}" for users in USERS])
        for (users, rows), look in zip(table.groupby("users"), looks.values(), strict=True):
            bars = np.abs(rows[["low", "high"]].to_numpy().T - rows.gap.to_numpy())
            axes.errorbar(
                *(rows["ε"], rows.gap, bars),
                **{"color": look.colour, "ls": look.dash, "marker": look.marker},
                **{"capsize": 2, "label": f"$N = {users}$"},
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(rf"$\epsilon$ at $\delta = {delta:g}$ after {ROUNDS} rounds")
        axes.set_ylabel(style.LABELS["gap"])
        axes.legend()
    return figure
