"""Do the bounds of Theorems 1 to 3 hold for the runs that they are about?

    jaxota run benchmarks/paper/bounds.py [--trials 20] [--seed 0]

For each number of rounds R there is one run at the proofs' step size for that R; its bound is
computed from constants measured on the run itself.
"""

import dataclasses
import functools
from collections.abc import Callable

import bounds_plot
import jax
import numpy as np
import pandas
import xarray
from well_conditioned import well_conditioned

import jaxota as jo

DRAWS, CALIBRATION_TRIALS = 5, 20
ERRORS = 4  # standard errors between a mean gap and its bound from which on the side is decided
OTHER_STEPS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.5, 3.0)  # times the proofs' step size, if that fails
CONSTANTS = [field.name for field in dataclasses.fields(jo.theory.Constants)]
CONSTANTS = [name for name in CONSTANTS if name not in ("gap", "update_ratio", "power_ratio")]
UNMET = {
    "step_size": "step size",
    "rounds": "R ≥ {least:.0f}",
    "logarithm": "logarithm 0",
    "measured_step_size": "constants of another step size",
    "measured_rounds": "constants of far fewer rounds",
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A theorem and an algorithm that it is about.

    Attributes:
        algorithm: its step size is replaced by the proofs'.
        task: options of `well_conditioned`.
        cause: why runs lie above the bound, if they do.
    """

    label: str
    theorem: Callable
    algorithm: jo.Algorithm
    channel: jo.Channel
    rounds: tuple[int, ...]
    task: dict = dataclasses.field(default_factory=dict)
    cause: str = "unknown"

    @property
    def theorem_name(self):
        return self.theorem.__name__.replace("theorem_", "Theorem ")


_LOCAL = {"step_size": 1.0, "steps": 4, "batch": 5}
CASES = (
    Case(
        *("BAAF", jo.theory.theorem_1, jo.baaf(**_LOCAL), jo.Channel(10.0)),
        rounds=(12, 25, 50, 100, 200, 400),
    ),
    Case(
        *("COBAAF", jo.theory.theorem_2, jo.cobaaf(**_LOCAL), jo.Channel(10.0)),
        rounds=(6, 12, 25, 50, 100, 200),
    ),
    Case(
        *("COBAAF, 4 of 8 users", jo.theory.theorem_3, jo.cobaaf(**_LOCAL)),
        jo.Channel(10.0, participants=4),
        rounds=(125, 250, 500, 1000),
    ),
    # Where Theorem 1 fails: no minibatch noise hides the bias of the MMSE estimate.
    Case(
        *("BAAF, full gradients", jo.theory.theorem_1, jo.baaf(step_size=1.0, steps=4)),
        jo.Channel(0.0),
        rounds=(50, 200, 800),
        task={"users": 20, "spread": 1.0},
        cause="the proof takes the MMSE estimate to be unbiased, with the error of Prop. 1, as "
        "under a true prior; calibrated on a fifth of the data, with users taken as independent, "
        "the prior is not true",
    ),
)


@jo.experiment("whether the bounds of Theorems 1 to 3 hold for the runs that they are about")
def bounds(run, seed=0, trials=20):
    """Compare all cases with their theorems, on `DRAWS` data draws."""
    if trials < 2:
        raise jo.InputError(f"trials must be a whole number ≥ 2, got {trials}")
    cases = {case.label: case for case in CASES}
    results = {case.label: compared(case, seed, trials) for case in CASES}
    worst = {label: worst_draw(data) for label, data in results.items()}
    joined = [data.expand_dims(algorithm=[label]) for label, data in results.items()]
    return jo.Report(
        name="bounds",
        caption="bounds: the theorems beside simulation, well-conditioned least squares, one run "
        f"for each R at the proofs' step size; {DRAWS} data draws, {trials} trials, SNR per "
        f"vector, seed {seed}",
        table=table(results),
        remarks=remarks(cases, results),
        dataset=xarray.concat(joined, "algorithm", data_vars="all", join="outer"),
        csv=rows(cases, results),
        figure=lambda: bounds_plot.draw(cases, results, worst),
    )


def compared(case, seed, trials):
    """Gaps, bounds and constants of a case [draw, rounds], as an xarray.Dataset."""
    tasks = well_conditioned(seed, DRAWS, **case.task)
    draws = [_compared_on(case, task, seed, trials) for task in tasks]
    return xarray.concat(draws, "draw", data_vars="all")


def _compared_on(case, task, seed, trials):
    """Compare a case with its theorem on one data draw."""

    run = seed, case.algorithm, case.channel, task, case.rounds, trials
    data = to_dataset(case, *compare(*run, case.theorem))
    if bool(data.violated.any()):
        # The theorems say that some step size keeps the bound: look for one.
        least = data.gap.mean("trial") / data.bound
        for factor in OTHER_STEPS:
            step_size = np.minimum(factor * data.step_size, data.largest_step)
            other = to_dataset(case, *compare(*run, case.theorem, step_size.values))
            ratio = other.gap.mean("trial") / other.bound
            least = np.minimum(least, ratio.where(other.applies, np.inf))
        data["least_ratio"] = least
    return data


def compare(seed, algorithm, channel, task, rounds, trials, theorem, step_size=None):
    """Constants measured on runs of `rounds` [R] rounds, and the bounds of `theorem` from them.

    All trials, and calibration, start from θ^0 = 0: d_0 is then a number, and M² does not depend on
    random initial models. Each R is a run of its own at its own step size. The proofs' step size
    for R needs constants, which are first measured at the largest step size that the theorem
    allows; the bound then comes from the constants of the final run.

    Args:
        seed, channel, task, trials: as of `jo.theory.measure`.
        algorithm: its step size is replaced by `step_size`.
        rounds: [R] numbers of rounds.
        theorem: such as `jo.theory.theorem_1`.
        step_size: [R]; by default the proofs' choice for each R.
    """
    zeros = np.zeros((trials, task.dim), np.float32)

    def stepping(step_size):
        return algorithm.replace(local=algorithm.local.replace(step_size=step_size))

    def calibrated(step_size):
        run = seed, stepping(step_size), task, max(rounds), CALIBRATION_TRIALS
        return jo.calibrate(*run, initial=zeros)

    def measured(step_size):
        plan = jax.vmap(calibrated)(step_size) if algorithm.needs else None
        run = seed, stepping(step_size), channel, task, rounds, trials
        return jo.theory.measure(*run, plan=plan, initial=zeros)

    if step_size is None:
        largest = largest_step(theorem, algorithm, channel, task)
        constants = measured(np.full(len(rounds), largest))
        step_size = _of_each(theorem)(constants, np.float32(rounds), None).step_size
    constants = measured(np.asarray(step_size))
    bound = _of_each(theorem)(constants, np.float32(rounds), np.float32(step_size))
    return jax.device_get((constants, bound))


def largest_step(theorem, algorithm, channel, task):
    """The largest step size that the theorem allows for B² = 1: of β, μ, N, S and K alone."""
    features = np.asarray(task.features, np.float64)
    hessians = 2 * np.einsum("nsd,nse->nde", features, features) / features.shape[1]
    values = np.linalg.eigvalsh(hessians)
    fields = dataclasses.fields(jo.theory.Constants)
    constants = {field.name: 1.0 for field in fields if field.default is not None} | {
        "smoothness": values.max(),
        "strong_convexity": values.min(),
        "users": task.users,
        "steps": algorithm.local.steps,
        "participants": task.users if channel.participants is None else channel.participants,
    }
    return float(theorem(jo.theory.Constants(**constants), 1.0).largest_step)


@functools.cache
def _of_each(theorem):
    """The theorem for arrays [R] of constants, rounds and step sizes."""
    return jax.jit(jax.vmap(theorem))


def to_dataset(case, constants, bound):
    """A comparison on one data draw as a Dataset [rounds], with the side of each mean gap."""
    gap = np.asarray(constants.gap, float)
    band = jo.stats.interval(gap.T)
    error = gap.std(-1, ddof=1) / np.sqrt(gap.shape[-1])
    total, applies = np.asarray(bound.total, float), np.asarray(bound.applies)
    columns = {
        **{"gap_mean": band.mean, "ci_low": band.low, "ci_high": band.high, "bound": total},
        **bound.terms,
        "step_size": bound.step_size,
        "largest_step": bound.largest_step,
        "least_rounds": bound.least_rounds,
        "logarithm": bound.logarithm,
        **{f"condition_{name}": bound.conditions[name] for name in UNMET},
        "applies": applies,
        "violated": applies & (band.mean - ERRORS * error > total),
        "kept": applies & (band.mean + ERRORS * error < total),
        "power_ratio": constants.power_ratio,
        "update_ratio": constants.update_ratio,
        **{f"constant_{name}": getattr(constants, name) for name in CONSTANTS},
        "least_ratio": np.full(len(total), np.nan),
    }
    variables = {name: ("rounds", np.asarray(values)) for name, values in columns.items()}
    variables["gap"] = ("rounds", "trial"), gap
    return xarray.Dataset(variables, {"rounds": list(case.rounds)})


def worst_draw(data):
    """The data draw whose mean gap comes closest to its bound, or exceeds it most."""
    ratio = (data.gap_mean / data.bound).where(data.applies, 0.0)
    return int(ratio.max("rounds").argmax("draw"))


def conditions(data):
    """Say "met", or which conditions are not, at one draw and R."""
    unmet = [words for name, words in UNMET.items() if not bool(data[f"condition_{name}"])]
    text = ", ".join(unmet).format(least=float(data.least_rounds))
    return f"not met: {text}" if unmet else "met"


def table(results):
    """Rows of cells: for each case and R the worst draw's gap, its bound and its largest term."""
    head = ("algorithm", "R", "conditions", "gap", "bound", "gap/bound", "largest term")
    cells = [[*head, "draws above the bound"]]
    for label, data in results.items():
        worst = data.isel(draw=worst_draw(data))
        for at, above in zip(worst.rounds.values, data.violated.sum("draw").values, strict=True):
            point = worst.sel(rounds=at)
            terms = {name: float(point[name] / point.bound) for name in jo.theory.TERMS}
            largest = max(terms, key=terms.get)
            gap, bound = float(point.gap_mean), float(point.bound)
            numbers = f"{gap:.3g}", f"{bound:.3g}", f"{gap / bound:.2g}"
            term = f"{largest.replace('_', ' ')} {terms[largest]:.0%}"
            count = f"{above} of {data.draw.size}"
            cells.append([label, str(at), conditions(point), *numbers, term, count])
    return cells


def remarks(cases, results):
    """Sentences under the table: how each bound fared, and why one fails."""
    lines = [
        "Rows show the data draw whose gap comes closest to its bound. A mean gap is above (below) "
        f"its bound if it lies at least {ERRORS} standard errors above (below) it, and undecided "
        "in between."
    ]
    for label, data in results.items():
        lines += [f"{label}: {words}" for words in _verdicts(cases[label], data)]
    return lines


def _verdicts(case, data):
    name, above = case.theorem_name, data.violated.values
    applies, kept = int(data.applies.sum()), int(data.kept.sum())
    undecided = applies - kept - int(above.sum())
    rest = f", undecided at {undecided}" if undecided else ""
    if above.any():
        ratio = (data.gap_mean / data.bound).values[above].max()
        yield (
            f"{name} is VIOLATED at {int(above.sum())} of {applies} (draw, R) that meet its "
            f"conditions{rest}, by up to {ratio:.2g} times, at the proofs' step size: {case.cause}."
        )
        least = data.least_ratio.values[above]
        yield (
            f"of {1 + len(OTHER_STEPS)} step sizes the best still leaves {int((least > 1).sum())} "
            f"of these above, by up to {least.max():.2g} times."
        )
    elif not applies:
        yield f"no R meets the conditions of {name}."
    elif undecided:
        yield f"{name} holds at {kept} of {applies} (draw, R) that meet its conditions{rest}."
    else:
        yield f"{name} holds at all {applies} (draw, R) that meet its conditions."
    excess = float(data.update_ratio.max())
    if excess > 1:
        yield f"max_i E‖Δ_i‖² reaches {excess:.2f}·(KηM)²; the proof takes it to be at most 1."
    yield f"power ratio up to {float(data.power_ratio.max()):.3g}."


def rows(cases, results):
    """Tidy rows of the CSV: one for each algorithm, data draw and R."""
    frames = []
    for label, data in results.items():
        constants = [name for name in data if name.startswith("constant_")]
        frame = data.drop_vars(["gap", "kept", "least_ratio", *constants]).to_dataframe()
        frame = frame.reset_index().rename(columns={"gap_mean": "gap"})
        frame.insert(0, "algorithm", label)
        frame.insert(1, "theorem", cases[label].theorem.__name__)
        frames.append(frame)
    return pandas.concat(frames, ignore_index=True)
