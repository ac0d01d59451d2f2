"""How far are the algorithms from the best plan of a class, and does a tuned plan carry over?

    jaxota run benchmarks/paper/exact_best.py [--set draws=10] [--set iterations=60]

The plan is tuned on the data of fig1 by gradients through the recursion (`jo.exact_best`). It
is simulated there, and computed on other data draws, on which it was not tuned. WISE, which has no
exact curve, is simulated on the same data.
"""

import jax
import numpy as np
import pandas
import xarray

import jaxota as jo

LINEAR = ("noisy FedAvg", "COTAF", "BAAF", "COBAAF")


@jo.experiment(
    "how far the algorithms are from the best plan of a class, on its task and on others"
)
def exact_best(run, seed=0, draws=10, trials=2000, rounds=60, iterations=60):
    """Tune a plan on one draw; simulate it there, and compute it on others."""
    study = jo.figures.FIGURES["fig1"].study(seed, rounds=rounds)
    getattr(run, "progress", lambda *_: None)("tuning")
    found = jo.exact_best(study.algorithms["COTAF"], study.channel, study.task, rounds, iterations)
    channel, task = study.channel, study.task
    plan, tuned = found.plan, found.algorithm
    history = jo.simulate(study.key, tuned, channel, task, rounds, trials, plan=plan)
    gap = np.asarray(history.gap, np.float64)
    z = (gap.mean(0) - found.expected.gap) / (gap.std(0, ddof=1) / np.sqrt(trials))
    keys = jax.vmap(lambda n: jax.random.fold_in(task.key, n))(np.arange(1, draws + 1))
    others = task.replace(key=keys)
    wise = jo.wise(**_local(study.algorithms["COTAF"]))
    alone = {k: jo.exact(study.algorithms[k], channel, task, rounds).gap[-1] for k in LINEAR}
    alone["tuned plan"] = found.expected.gap[-1]
    alone["WISE (simulated)"] = _simulated(study, wise, task, rounds, trials)
    away = {k: jo.exact(study.algorithms[k], channel, others, rounds).gap[:, -1] for k in LINEAR}
    away["tuned plan"] = np.array([_on(tuned, plan, channel, task, key, rounds) for key in keys])
    away["WISE (simulated)"] = np.array(
        [_simulated(study, wise, task.replace(key=key), rounds, trials // 10) for key in keys]
    )
    rows = [["algorithm", "gap where tuned", "over the best", f"median gap of {draws} other draws"]]
    for name, value in alone.items():
        ratio = value / found.expected.gap[-1]
        rows.append([name, f"{value:.4g}", f"{ratio:.3g}", f"{np.median(away[name]):.4g}"])
    frame = pandas.DataFrame(away).assign(draw=np.arange(1, draws + 1))
    return jo.Report(
        name="exact_best",
        caption=f"fig1, {rounds} rounds: the best plan of its class, seed {seed}",
        table=rows,
        remarks=[
            f"Simulated with {trials:,} trials where it was tuned, the largest |z| of all rounds "
            f"is {np.abs(z).max():.2f}; users spend {history.mean_power.mean():.2f} of the peak.",
            f"L-BFGS stopped after {found.evaluations} gradients, the last of norm "
            f"{found.gradient:.2g}; at a local optimum it would be 0.",
        ],
        dataset=xarray.Dataset({"best": ("round", found.expected.gap), "z": ("round", z)}),
        csv=frame,
        figure=lambda: jo.plots.curves({"tuned plan": history}),
    )


def _local(algorithm):
    local = algorithm.local
    return {"step_size": local.step_size, "steps": local.steps, "batch": local.batch}


def _on(tuned, plan, channel, task, key, rounds):
    """Expected last gap of a tuned plan on other data."""
    return jo.exact(tuned, channel, task.replace(key=key), rounds, plan=plan).gap[-1]


def _simulated(study, algorithm, task, rounds, trials):
    """Mean last gap."""
    history = jo.simulate(study.key, algorithm, study.channel, task, rounds, trials)
    return float(np.asarray(history.gap, np.float64)[:, -1].mean())
