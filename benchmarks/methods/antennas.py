"""How does the error of the received average fall with the number of the server's antennas?

    jaxota run benchmarks/methods/antennas.py [--trials 50] [--seed 0]

Rayleigh fading, all users heard. Uniform forcing (Yang, Jiang, Shi & Ding, 2020) knows all channels
at the server and fᴴh_i at user i, and its error is noise alone: d·ν, which the weakest user sets.
Blind combining (Amiri, Duman & Gündüz, 2021) needs nothing at the users; its error is noise and
interference between users. One antenna with uniform forcing, or with sums of few, has no mean error
under Rayleigh fading, so forcing is shown by medians.

Two studies: one aggregation after another of fixed vectors, beside the laws; and final gaps of
COTAF on the data of fig1.
"""

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pandas
from matplotlib.figure import Figure
from scipy import special

import jaxota as jo

USERS, DIM, SNR_DB, ROUNDS = 20, 10, 10.0, 60
ANTENNAS = (1, 4, 16, 64)
ANSWERS = {
    "forcing, sum": jo.UniformForcing("sum"),
    "forcing, eigenvector": jo.UniformForcing("eigenvector"),
    "forcing, ascent": jo.UniformForcing("ascent"),
    "blind": jo.Blind(),
}
COLUMNS = ["answer", "antennas", "quantity", "value", "ci_low", "ci_high", "law"]


@jo.experiment("how the error falls with the number of antennas, for uniform forcing and blind")
def antennas(run, seed=0, trials=50):
    """Measure errors of one aggregation, and final gaps, against the number of antennas."""
    vectors = 1.0 + np.random.default_rng(seed).standard_normal((USERS, DIM))
    fixed = jo.tasks.empirical(_start, _inner_product, vectors[:, None].astype(np.float32))
    data = jo.tasks.synthetic_regression(jax.random.key(seed), users=USERS, dim=DIM)
    ideal = jo.simulate(seed, jo.fedavg(1e-2, 10, 10), jo.Channel(), data, ROUNDS, trials)
    one = run(study("antennas-error", jo.cotaf(1.0, 1, precode=jo.Online()), fixed, seed, trials))
    cotaf = jo.cotaf(1e-2, 10, 10, precode=jo.Online())
    learnt = run(study("antennas-gap", cotaf, data, seed, trials))
    rows = [*errors(one, vectors), *final_gaps(learnt)]
    rows.append({"answer": "error-free", "quantity": "final gap"} | _median(ideal.gap[:, -1]))
    table = pandas.DataFrame(rows)[COLUMNS]
    return report(table, seed, trials)


def _start(key):
    return jnp.zeros(DIM)


def _inner_product(model, batch):
    return (batch * model[None]).sum(-1)


def study(name, algorithm, task, seed, trials):
    """One algorithm with every answer and number of antennas."""
    points = {
        (answer, count): jo.rayleigh(answer=part, antennas=count)
        for answer, part in ANSWERS.items()
        for count in ANTENNAS
    }
    over = jo.axis("point", {"fading": list(points.values())}, [f"{a}, {n}" for a, n in points])
    channel = jo.Channel(snr_db=SNR_DB)
    algorithms = {"COTAF": algorithm}
    return jo.Study(algorithms, channel, task, ROUNDS, trials, over, seed, name=name)


def points():
    """Answers and numbers of antennas, in the order of the studies' axis."""
    return [(answer, count) for answer in ANSWERS for count in ANTENNAS]


def errors(dataset, vectors):
    """Rows of the relative squared error of the average, with its law where there is one."""
    square = (vectors.mean(0) ** 2).sum()
    for number, (answer, count) in enumerate(points()):
        own = dataset.isel(algorithm=0, point=number)
        if answer == "blind":  # trials, whose rounds fade independently
            band = jo.stats.interval(own.error.values.mean(1) / square)
            found = {"value": band.mean, "ci_low": band.low, "ci_high": band.high}
        else:
            found = _median(DIM * own.deviation.values.ravel() ** 2 / square)
        law = blind_law(count, vectors)[0] if answer == "blind" else forcing_law(count, vectors)
        found |= {"law": law / square}
        yield {"answer": answer, "antennas": count, "quantity": "relative error"} | found


def _median(values):
    between = jo.stats.median(np.asarray(values))
    return {"value": np.median(values), "ci_low": between.low, "ci_high": between.high}


def noise_of_one(vectors):
    """d·sw2·E/P, the noise on a sum at level 1."""
    return DIM * 10 ** (-SNR_DB / 10) * (vectors**2).sum(1).max()


def forcing_law(count, vectors):
    """Median error if the weakest user had all antennas to itself: exact for one antenna.

    |fᴴh_i| ≤ ‖h_i‖ for every f, and ‖h_i‖² ~ Gamma(A, 1), so no combiner has a lower median.
    """
    least = special.gammaincinv(count, 1 - 0.5 ** (1 / USERS))
    return noise_of_one(vectors) / (USERS**2 * least)


def blind_law(count, vectors):
    """Mean error of blind combining, and its noise alone.

    A gain has variance (N + 1)/(2A), and two have covariance 1/(2A).
    """
    energies, total = (vectors**2).sum(), (vectors.sum(0) ** 2).sum()
    interference = (USERS * energies + total) / (2 * count * USERS**2)
    noise = noise_of_one(vectors) / (USERS * count)
    return interference + noise, noise


def final_gaps(dataset):
    """Rows of the median gap after the last round."""
    for number, (answer, count) in enumerate(points()):
        gap = dataset.gap.isel(algorithm=0, point=number, evaluation=-1).values
        yield {"answer": answer, "antennas": count, "quantity": "final gap"} | _median(gap)


def report(table, seed, trials):
    """The report of a table of all points."""
    setting = f"Rayleigh fading, N = {USERS}, d = {DIM}, {SNR_DB:g} dB per vector"
    shown = [["", "answer", *(f"A = {count}" for count in ANTENNAS)]]
    for quantity in ("relative error", "final gap"):
        for answer in ANSWERS:
            own = table[(table.answer == answer) & (table.quantity == quantity)]
            shown.append([quantity, answer, *(f"{value:.3g}" for value in own.value)])
    away = _away(table)
    free = table[table.answer == "error-free"].value.iloc[0]
    return jo.Report(
        name="antennas",
        caption=f"antennas: error of the average against antennas, {setting}; {trials} trials of "
        f"{ROUNDS} rounds, seed {seed}",
        table=shown,
        remarks=[
            "Errors are squared, over the squared norm of the true average: of blind combining the "
            "mean, of forcing the median, as its mean is infinite or nearly so with few antennas.",
            f"Blind combining differs from its law by at most {away['blind']:.1%}; forcing with "
            f"one antenna by {away['forcing']:.1%}.",
            f"Gaps are medians after {ROUNDS} rounds of COTAF; without errors it is {free:.3g}.",
        ],
        dataset=table.to_xarray(),
        csv=table,
        figure=lambda: draw(table, f"{setting}, medians of {trials} trials"),
    )


def _away(table):
    """Largest relative distances from the laws that are exact."""
    known = table[table.quantity == "relative error"]
    off = (known.value / known.law - 1).abs()
    forced = (known.answer != "blind") & (known.antennas == 1)
    return {"blind": off[known.answer == "blind"].max(), "forcing": off[forced].max()}


def draw(table, title):
    """Draw errors beside their laws, and final gaps."""
    with matplotlib.rc_context(jo.style.rc_params()):
        across = jo.style.columns(2, 1)
        size = jo.style.width(across), 3.1 if across == 2 else 5.2
        figure = Figure(figsize=size, dpi=300, layout="constrained")
        row = list(figure.subplots(2 // across, across, squeeze=False).ravel())
        looks = jo.style.looks(ANSWERS)
        for axes, quantity in zip(row, ("relative error", "final gap"), strict=True):
            own = table[table.quantity == quantity]
            bands = {name: _band(own[own.answer == name]) for name in ANSWERS}
            floor = jo.style.log_floor(list(bands.values()))
            for name, band in bands.items():
                jo.style.curve(axes, looks[name], name, np.array(ANTENNAS), band, floor, every=1)
            jo.style.label_axes(axes, "antennas $A$", quantity)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xticks(ANTENNAS, [str(count) for count in ANTENNAS])
        laws = table[table.quantity == "relative error"].set_index(["answer", "antennas"]).law
        lines = {
            "law of blind": (laws["blind"], ":"),
            "bound of forcing": (laws["forcing, sum"], "-"),
        }
        for name, (law, dash) in lines.items():
            row[0].plot(ANTENNAS, law, dash, color="0.35", lw=0.9, label=name, zorder=0)
        free = table[table.answer == "error-free"].value.iloc[0]
        row[1].axhline(free, color="0.6", lw=0.9, dashes=(1, 1), label="error-free")
        row[0].set_ylabel("squared error of the average, relative")
        row[1].set_ylabel(jo.style.LABELS["gap"])
        handles, labels = jo.style.legend_entries(row)
        ncols = jo.style.columns(4, 2)
        figure.legend(handles, labels, loc="outside lower center", ncols=ncols, handlelength=3.2)
        jo.style.figure_title(figure, title)
    return figure


def _band(rows):
    ends = (rows[name].values for name in ("value", "ci_low", "ci_high"))
    return jo.stats.Interval(*ends, used=1, trials=1)
