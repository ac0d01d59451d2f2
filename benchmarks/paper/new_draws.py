"""The claims at chosen settings, one by one and together, on data draws that chose nothing."""

import math

import numpy as np
from data_draws import NoisePerDraw, data_draws
from reproduction_effects import readings

import jaxota as jo

FIRST = 1000  # number of the first new draw; those of the design and of claims.py are below 100
SNR_DB = 10.0


def snr_db(family, dim):
    """SNR per vector of each level, so that both conventions are one program."""
    (choice,) = (choice for choice in family.choices if choice.name == "SNR")
    known = {"vector": SNR_DB, "symbol": SNR_DB + 10 * math.log10(dim)}
    return [known.get(value, value) for value in choice.values]


def held_on_new_draws(run, family, point, figures, seed, trials, draws, **images):
    """Whether each part about these figures holds at a setting, by name: [draw, evaluation]."""
    parts = [part for part in family.parts if part.figure in figures]
    scores = {}
    for figure in dict.fromkeys(where for part in parts for where, _ in part.sources):
        study = point_study(family, point, figure, seed, trials, draws, **images)
        dataset = run(study)
        scores[figure] = mean_scores(dataset).isel(setting=0).transpose("algorithm", "draw", ...)

    def read(figure, algorithm, _):
        return scores[figure].sel(algorithm=family.label(algorithm, point)).values

    return {part.name: part.holds(part.effects(read)) for part in parts}


def point_study(family, point, figure, seed, trials, draws, **images):
    """A figure at one setting on new draws, as long as the longest that is read."""
    base = jo.figures.FIGURES[figure].study(seed, trials=trials, **images)
    dim = (base.task.build() if images else base.task).dim
    fields = {
        choice.field: [(snr_db(family, dim) if choice.name == "SNR" else choice.values)[level]]
        for choice, level in zip(family.choices, point, strict=True)
        if choice.field
    }
    read_at = [max(choice.values) for choice in family.choices if choice.name == "rounds"]
    name = "-".join(map(str, point))
    return base.replace(
        algorithms=family.algorithms(figure, [point]),
        channel=base.channel.replace(noise=NoisePerDraw(), control_power=base.channel.power),
        rounds=max(read_at, default=family.rounds),
        trials=trials,
        over=jo.axis("setting", fields, [family.words(point)])
        * data_draws(base.task.key, draws, FIRST),
        every=family.every,
        calibration_trials=family.calibration_trials,
        reference="",
        name=f"readings-{figure}-{name}",
    )


def mean_scores(dataset):
    """Mean score over trials [algorithm, …]; a gap is ∞ and an accuracy NaN where one diverged."""
    metric = dataset.attrs["metric"]
    values = dataset[metric].astype("float64").where(~jo.stats.diverged(dataset))
    mean = values.mean("trial", skipna=False)
    mean = mean.where(np.isfinite(mean), np.nan if metric == "accuracy" else np.inf)
    return mean.reset_coords(drop=True).load()


def largest_power(dataset):
    """Largest power ratio of any round and block, mean over trials [algorithm, …]."""
    blocks = [name for name in ("power", "control_power") if name in dataset]
    power = [dataset[name].astype("float64").mean("trial", skipna=False) for name in blocks]
    ratio = power[0] if len(power) == 1 else np.fmax(*power)
    return ratio.max("round", skipna=False).reset_coords(drop=True).load()


def together(held, family, figures):
    """Whether all claims about these figures hold together [draw, …].

    Of parts that read the same words of the paper, one is enough.
    """
    groups = readings([part for part in family.parts if part.figure in figures])
    return np.all([np.any([held[part.name] for part in group], 0) for group in groups], 0)


def in_words(count, draws):
    """Count of draws on which something holds, with its exact interval."""
    low, high, _ = jo.stats.share(int(count), int(draws))
    return f"{count} of {draws} [{100 * low:.0f}, {100 * high:.0f}] %"
