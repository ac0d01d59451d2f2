"""Does WISE collapse on networks, where losses are not convex?

jaxota run benchmarks/wise/networks.py --set model=cnn
jaxota run benchmarks/wise/networks.py --set model=mlp
"""

from typing import Any

import jax
import matplotlib
import numpy as np
import pandas

import jaxota as jo

MODELS = {"cnn": jo.tasks.CNN, "mlp": jo.tasks.MLP}


def algorithms() -> dict[str, jo.Algorithm]:
    """Return WISE, COTAF at its step size, and COTAF at ten times that."""
    local: dict[str, Any] = {"step_size": 1e-2, "steps": 5, "batch": 20}
    cotaf = jo.cotaf(**local, precode=jo.Online())
    return {
        "WISE": jo.wise(**local),
        "COTAF": cotaf,
        "COTAF, η = 0.1": jo.cotaf(**local | {"step_size": 0.1}, precode=jo.Online()),
    }


@jo.experiment("WISE and COTAF on a CNN or an MLP: every trial, to see whether any collapses")
def networks(
    run,
    seed: int = 0,
    trials: int = 8,
    rounds: int = 60,
    deals: int = 3,
    model: str = "cnn",
    dataset: str = "",
    data_dir: str | None = None,
    snr_db: float = 10.0,
) -> jo.Report:
    if model not in MODELS:
        raise jo.InputError(f"model must be one of {', '.join(MODELS)}, got {model}")
    k_data, k_trials = jax.random.split(jax.random.key(seed))
    name, reason = (dataset, "") if dataset else jo.tasks.images_at_hand()
    task = jo.tasks.Images(
        name, MODELS[model], partition=jo.tasks.label_skew(0.2), data_dir=data_dir, key=k_data
    )
    study = jo.Study(
        algorithms(),
        jo.Channel(snr_db),
        task,
        rounds,
        trials,
        over=jo.axis("deal", {"task.key": list(jax.random.split(k_data, deals))}),
        key=k_trials,
        every=max(rounds // 3, 1),
        metric="accuracy",
        name=f"networks_{model}",
    )
    accuracy = run(study).accuracy.rename(evaluation="round").astype(np.float64).load()
    last = accuracy.isel(round=-1)
    usual = float(last.sel(algorithm="COTAF").median())
    rows = [["algorithm", "mean ± over deals", "median", "worst trial", "collapsed"]]
    for each in last:
        values = np.nan_to_num(each.transpose("deal", "trial").values)  # NaN: a model that burst
        band = jo.stats.interval(values.mean(1))
        rows.append(
            [
                each.algorithm.item(),
                f"{float(band.mean):.4f} ± {float(band.half_width):.4f}",
                f"{np.median(values):.4f}",
                f"{values.min():.4f}",
                f"{int((values < usual - 0.1).sum())} of {values.size}",
            ]
        )
    frame: pandas.DataFrame = last.to_dataframe("accuracy").reset_index()
    return jo.Report(
        name=f"networks_{model}",
        caption=f"networks: accuracy of a {model.upper()} on {task.title} with label skew, N = 10, "
        f"K = 5, {snr_db:g} dB per vector, {rounds} rounds, {deals} deals of the data, {trials} "
        f"trials each, seed {seed}",
        table=rows,
        remarks=[
            "All use η = 0.01 unless said otherwise, and keep the same peak power. ± is a 95 % "
            "interval over the means of deals. Collapsed: a trial more than 0.1 below COTAF's "
            "median, or with NaN, which counts as accuracy 0.",
            *filter(None, [reason]),
        ],
        dataset=accuracy.to_dataset(name="accuracy"),
        csv=frame[["algorithm", "deal", "trial", "accuracy"]],
        figure=lambda: _figure(last, f"{model.upper()} on {task.title}: every trial"),
    )


def _figure(last, title: str):
    """Draw the final accuracy of every trial, a column for each algorithm."""
    style = jo.style
    with matplotlib.rc_context(style.rc_params()):
        figure, (axes,) = style.subplots(1, 2.5)
        for n, each in enumerate(last):
            values = np.nan_to_num(each.values.ravel())
            offsets = np.linspace(-0.2, 0.2, values.size)
            axes.plot(n + offsets, values, ".", ms=3, color=style.COLOURS[n])
        axes.set_xticks(range(last.algorithm.size), last.algorithm.values)
        axes.set_ylabel("test accuracy")
        style.figure_title(figure, title)
    return figure
