"""Is WISE also ahead of COTAF, BAAF and COBAAF on images?

jaxota run benchmarks/wise/images.py
"""

import itertools
from typing import Any

import jax
import matplotlib
import numpy as np
import pandas

import jaxota as jo

STEP_SIZE, STEP_SIZES = 1e-2, (1e-2, 3e-2, 1e-1)  # WISE's, and those that the others choose from
PARTITIONS = {"label skew": jo.tasks.label_skew(0.2), "iid": jo.tasks.iid()}
SNR_DB = (0.0, 10.0)  # per vector
REFERENCE = "FedAvg (noise-free)"


def algorithms() -> dict[str, jo.Algorithm]:
    """Return WISE, its competitors at the same peak power, and FedAvg over error-free links."""
    local: dict[str, Any] = {"step_size": STEP_SIZE, "steps": 5, "batch": 20}
    return {
        "WISE": jo.wise(**local),
        "COTAF": jo.cotaf(**local, precode=jo.Online()),
        "BAAF": jo.baaf(**local, precode=jo.Online()),
        "COBAAF": jo.cobaaf(**local, precode=jo.Online()),
        REFERENCE: jo.fedavg(**local),
    }


@jo.experiment("WISE beside COTAF, BAAF and COBAAF on MNIST, or on digits where there is no MNIST")
def images(
    run,
    seed: int = 0,
    trials: int = 10,
    rounds: int = 100,
    deals: int = 3,
    dataset: str = "",
    data_dir: str | None = None,
    init_scale: float = 0.0,
) -> jo.Report:
    k_data, k_trials = jax.random.split(jax.random.key(seed))
    name, reason = (dataset, "") if dataset else jo.tasks.images_at_hand()
    task = jo.tasks.Images(
        name,
        jo.tasks.SoftmaxRegression,
        init_scale=init_scale,
        data_dir=data_dir,
        key=k_data,
    )
    study = jo.Study(
        algorithms(),
        jo.Channel(),
        task,
        rounds,
        trials,
        over=jo.grid(partition=PARTITIONS, snr_db=SNR_DB, step_size=STEP_SIZES)
        * jo.axis("deal", {"task.key": list(jax.random.split(k_data, deals))}),
        key=k_trials,
        every=5,
        calibration_trials=10,
        metric="accuracy",
        name="images",
    )
    accuracy = run(study).accuracy.rename(evaluation="round").astype(np.float64).load()
    curves, scored = _curves(accuracy), accuracy["round"].values
    return jo.Report(
        name="images",
        caption=f"images: accuracy of softmax regression on {task.title}, N = 10, K = 5, SNR per "
        f"vector, {rounds} rounds, {deals} deals of the data, {trials} trials each, seed {seed}",
        table=_table(curves, accuracy.isel(round=-1)),
        remarks=[
            "± is a 95 % interval over the means of deals, as trials of one deal share its data; "
            "differences are paired. In brackets: the number of deals on which the interval over "
            "their own trials lies above 0; on the others WISE is behind, or it is undecided.",
            f"WISE uses η = {STEP_SIZE:g}; the others the same, or in hindsight the best of "
            f"{', '.join(f'{x:g}' for x in STEP_SIZES)}. Precoders are online, {REFERENCE} is over "
            "error-free links.",
            *filter(None, [reason]),
        ],
        dataset=accuracy.to_dataset(name="accuracy"),
        csv=_rows(curves, scored),
        figure=lambda: _figure(
            curves, scored, f"{task.title}, η = {STEP_SIZE:g}, {deals} deals × {trials} trials"
        ),
    )


def _curves(accuracy) -> dict[tuple, jo.stats.Interval]:
    """Return intervals over deals, by partition, SNR, algorithm and step size."""
    axes = ["partition", "snr_db", "algorithm", "step_size"]
    by_deal = accuracy.mean("trial", skipna=False)
    stacked = by_deal.stack(curve=axes).transpose("curve", "deal", "round")
    places = zip(stacked.curve.values, stacked.values, strict=True)
    return {place: jo.stats.interval(values) for place, values in places}


def _table(curves, last) -> list[list[str]]:
    """Return a row for each partition, SNR and algorithm."""
    header = ["data", "SNR", "algorithm", f"η = {STEP_SIZE:g}", "WISE ahead by", "best η", "then"]
    rows = [[*header, "WISE ahead by"]]
    for *place, name in itertools.product(PARTITIONS, SNR_DB, algorithms()):
        best = max(STEP_SIZES, key=lambda x: np.nan_to_num(curves[*place, name, x].mean[-1]))
        here = last.sel(partition=place[0], snr_db=place[1])
        cells = []
        for step_size in (STEP_SIZE, best):
            band = curves[*place, name, step_size]
            cells += [f"{band.mean[-1]:.4f} ± {band.half_width[-1]:.4f}"]
            cells += ["–" if name in ("WISE", REFERENCE) else _lead(here, name, step_size)]
        rows.append([place[0], f"{place[1]:g} dB", name, *cells[:2], f"{best:g}", *cells[2:]])
    return rows


def _lead(last, name: str, step_size: float) -> str:
    """Say how far WISE is ahead, trial by trial, and on how many deals beyond their interval."""
    wise = last.sel(algorithm="WISE", step_size=STEP_SIZE).values  # [deal, trial]
    other = last.sel(algorithm=name, step_size=step_size).values
    ahead = sum(bool(jo.stats.paired(*deal).low > 0) for deal in zip(wise, other, strict=True))
    lead = jo.stats.paired(wise.mean(1), other.mean(1))
    return f"{float(lead.mean):+.4f} ± {float(lead.half_width):.4f} ({ahead} of {len(wise)})"


def _rows(curves, rounds) -> pandas.DataFrame:
    """Return one row for each curve and round."""
    rows = []
    for place, band in curves.items():
        for r, *numbers in zip(rounds, band.mean, band.low, band.high, strict=True):
            rows.append([*place, r, *(f"{x:.6g}" for x in numbers)])
    axes = ["partition", "snr_db", "algorithm", "step_size", "round"]
    return pandas.DataFrame(rows, columns=[*axes, "mean", "ci_low", "ci_high"])


def _figure(curves, rounds, title: str):
    """Draw accuracy over the rounds with 95 % bands, a panel for each partition and SNR."""
    style, looks = jo.style, jo.style.looks(algorithms())
    with matplotlib.rc_context(style.rc_params()):
        figure, row = style.subplots(len(PARTITIONS) * len(SNR_DB), 2.5)
        for axes, place in zip(row, itertools.product(PARTITIONS, SNR_DB), strict=True):
            for name, look in looks.items():
                style.curve(axes, look, name, rounds, curves[*place, name, STEP_SIZE], 0.0)
            style.label_axes(axes, "round", f"{place[0]}, {place[1]:g} dB")
        row[0].set_ylabel("test accuracy")
        style.title_and_legend(figure, row, title)
    return figure
