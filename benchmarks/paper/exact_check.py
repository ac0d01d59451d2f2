"""Do exact curves agree with simulations, for every linear algorithm and channel?

    jaxota run benchmarks/paper/exact_check.py [--set trials=50000]

Every algorithm runs over every kind of channel, on two tasks with users of unequal size; on the
second they have weights. z is the difference of the mean over trials to the exact value, in
standard errors. Of all |z| of a run, over rounds and results, the largest is shown; below 4 is
agreement. The energies of exact plans are compared with those of calibrations in the same way.
"""

import jax
import matplotlib
import numpy as np
import optax
import pandas
import xarray
from matplotlib.figure import Figure

import jaxota as jo

ROUNDS, USERS, DIM, SIZES = 8, 5, 3, (14, 9, 12, 7, 11)
SGD = {"step_size": 1e-2, "steps": 10, "batch": 3}
ONE = {"step_size": 3e-2, "steps": 1, "batch": 3}
FULL = {"step_size": 1e-2, "steps": 10}
RESULTS = ("gap", "error", "control_error", "mean_power", "mean_control_power")
LIMIT = 4.0

CHANNELS = {
    "noise": jo.Channel(snr_db=5.0, control_power=3.0),
    "S = 2": jo.Channel(snr_db=5.0, participants=2),
    "Rayleigh": jo.Channel(snr_db=5.0, fading=jo.rayleigh(0.8, 0.6)),
    "Rayleigh, CSI errors": jo.Channel(snr_db=5.0, fading=jo.rayleigh(0.8, 0.6, csi_error=0.05)),
    "Rice, S = 4, CSI errors": jo.Channel(
        snr_db=5.0, fading=jo.rician(3.0, 0.7, 0.5, csi_error=0.1), participants=4
    ),
    "Nakagami, path loss, CSI errors": jo.Channel(
        snr_db=5.0,
        fading=jo.nakagami(2.0, 0.6, 0.5, csi_error=0.05),
        gains=(1.0, 0.5, 2.0, 0.3, 1.5),
    ),
}
OVER_THE_AIR = {
    "noisy FedAvg": jo.noisy_fedavg(**SGD),
    "COTAF": jo.cotaf(**SGD),
    "COTAF, full batches": jo.cotaf(**FULL),
    "COTAF, K = 1": jo.cotaf(**ONE),
    "COTAF, η by round": jo.cotaf(jo.by_round(0.02 / np.sqrt(1.0 + np.arange(ROUNDS))), 10, 3),
    "FedProx": jo.cotaf(**SGD).replace(local=jo.Proximal(1e-2, 10, 3, mu=2.0)),
    "BAAF": jo.baaf(**SGD),
    "BAAF, pooled": jo.baaf(**SGD, estimate=jo.PooledMMSE()),
    "BAAF, prior on updates": jo.baaf(**SGD, estimate=jo.UpdateMMSE()),
    "COBAAF": jo.cobaaf(**SGD),
    "COBAAF, full batches": jo.cobaaf(**FULL),
    "COBAAF, K = 1": jo.cobaaf(**ONE),
    "COBAAF, warm start": jo.cobaaf(**SGD, warm_start=True),
    "COBAAF, bounded gain": jo.cobaaf(**SGD, precode=jo.Bounded(60.0)),
    "COBAAF, momentum": jo.cobaaf(**SGD, server=optax.sgd(0.7, momentum=0.3)),
}
ERROR_FREE = {"FedAvg": jo.fedavg(**SGD), "SCAFFOLD": jo.scaffold(**SGD)}
CALIBRATED = "COTAF", "BAAF", "COBAAF"  # of which the plan's energies are compared


@jo.experiment(
    "whether exact curves agree with simulations, for every linear algorithm and channel"
)
def exact_check(run, seed=0, trials=50_000):
    """Compare `jo.exact` with `jo.simulate` on two tasks."""
    cases = [(k, a, c, ch) for c, ch in CHANNELS.items() for k, a in OVER_THE_AIR.items()]
    cases += [(k, a, "error-free", jo.Channel()) for k, a in ERROR_FREE.items()]
    progress, rows = getattr(run, "progress", lambda *_: None), []
    for done, (label, algorithm, name, channel) in enumerate(cases):
        progress(f"{label}, {name}", done, len(cases))
        for number in range(2):
            task = _task(seed, number)
            found = _scores(algorithm, channel, task, seed + number, trials)
            if name == "noise" and label in CALIBRATED:
                found["energy of the plan"] = _energy(algorithm, task)
            rows += [(label, name, number, result, *z) for result, z in found.items()]
    frame = pandas.DataFrame(
        rows, columns=["algorithm", "channel", "task", "result", "largest", "scores"]
    )
    worst = frame.groupby(["algorithm", "channel"], sort=False).largest.max().reset_index()
    table = [["algorithm", "channel", "largest |z|"]]
    table += [[a, c, f"{z:.2f}"] for a, c, z in worst.itertuples(index=False)]
    held = int((worst.largest < LIMIT).sum())
    return jo.Report(
        name="exact_check",
        caption=f"exact curves against {trials:,} trials, {ROUNDS} rounds, two tasks, seed {seed}",
        table=table,
        remarks=[
            f"|z| < {LIMIT:g} in {held} of {len(worst)} cases; {frame.scores.sum():,} numbers were "
            f"compared, the largest |z| of all is {frame.largest.max():.2f}."
        ],
        dataset=xarray.Dataset.from_dataframe(frame),
        csv=frame,
        figure=lambda: _draw(worst),
    )


def _draw(worst):
    """Draw the largest |z| of each case."""
    with matplotlib.rc_context(jo.style.rc_params()):
        figure = Figure(figsize=(5.0, 0.8 + 0.16 * len(worst)), dpi=200, layout="constrained")
        axes = figure.add_subplot()
        labels = [f"{a}; {c}" for a, c in zip(worst.algorithm, worst.channel, strict=True)]
        axes.plot(worst.largest, range(len(worst)), "o")
        axes.axvline(LIMIT, color="black", linewidth=0.6)
        axes.set_yticks(range(len(worst)), labels)
        axes.set_xlim(left=0)
        jo.style.label_axes(axes, "largest $|z|$ over rounds, results and two tasks", "")
    return figure


def _task(seed, number):
    """Users of unequal size on data of their own, on the second task weighted by it."""
    rng = np.random.default_rng([seed, number, 77])
    features = [1.0 + 0.3 * rng.standard_normal() + rng.standard_normal((n, DIM)) for n in SIZES]
    weights = [rng.standard_normal(DIM) - 2.0 for _ in SIZES]
    targets = [
        a @ w + 0.1 * rng.standard_normal(len(a)) for a, w in zip(features, weights, strict=True)
    ]
    weights = SIZES if number else np.ones(USERS)  # ones change nothing, and no program either
    return jo.tasks.weighted(jo.tasks.regression(features, targets), weights)


def _scores(algorithm, channel, task, seed, trials):
    """The largest |z|, and how many there are, of each result."""
    key = jax.random.fold_in(jax.random.key(seed), 5)
    plan = jo.exact_plan(algorithm, task, ROUNDS)
    expected = jo.exact(algorithm, channel, task, ROUNDS, plan=plan)
    history = jo.simulate(key, algorithm, channel, task, ROUNDS, trials, plan=plan)
    found = {}
    for result in RESULTS:
        value = getattr(expected, result)
        if value is not None:
            found[result] = _largest(history[result], value)
    models = np.asarray(history.model, np.float64)
    around = models - models.mean(0)
    found["mean"] = _largest(models, expected.mean[-1])
    products = around[:, :, None] * around[:, None, :]
    found["covariance"] = _largest(products, expected.covariance[-1])
    return found


def _energy(algorithm, task, runs=20):
    """The largest |z| of the plan's energies against calibrations, and how many there are."""
    plan = jo.exact_plan(algorithm, task, ROUNDS)
    runs = [jo.calibrate(n, algorithm, task, ROUNDS, 1000).update_energy for n in range(runs)]
    # In standard errors of one calibration: its largest energy is biased by a part of that.
    largest, size = _largest(np.stack(runs), plan.update_energy)
    return largest / np.sqrt(len(runs)), size


def _largest(values, expected):
    values = np.asarray(values, np.float64)
    error = values.std(0, ddof=1) / np.sqrt(len(values))
    # What does not vary between trials must agree to float32's rounding.
    close = np.isclose(values.mean(0), expected, rtol=2e-6, atol=1e-7)
    z = np.where(close, 0.0, (values.mean(0) - expected) / np.where(error > 0, error, 1e-30))
    return np.abs(z).max(), z.size
