"""What `jaxota run bounds` shows: bounds against R beside the runs that they speak of."""

import dataclasses
import functools

import jax
import numpy as np

import jaxota
from jaxota import checks, stats, theory, theory_plots
from jaxota.algorithms import Algorithm, baaf, cobaaf
from jaxota.beside import Beside, beside, well_conditioned
from jaxota.channel import Channel


@dataclasses.dataclass(frozen=True)
class Case:
    """A theorem and the algorithm it is of, to be laid beside each other."""

    label: str
    theorem: object  # a function of theory
    algorithm: Algorithm  # its step size is the proofs'
    channel: Channel
    rounds: tuple[int, ...]
    task: dict  # of `well_conditioned`


DRAWS = 5
_LOCAL = {"step_size": 1.0, "steps": 4, "batch": 5}
_FULL = {"step_size": 1.0, "steps": 4}
CASES = (
    Case("BAAF", theory.theorem_1, baaf(**_LOCAL), Channel(10.0), (12, 25, 50, 100, 200, 400), {}),
    Case(
        "COBAAF", theory.theorem_2, cobaaf(**_LOCAL), Channel(10.0), (6, 12, 25, 50, 100, 200), {}
    ),
    Case(
        "COBAAF, 4 of 8 users",
        theory.theorem_3,
        cobaaf(**_LOCAL),
        Channel(10.0, participants=4),
        (125, 250, 500, 1000),
        {},
    ),
    # Where Theorem 1 fails: no minibatch noise hides the bias of the MMSE estimate, whose prior
    # takes users as independent and so trusts itself N times too much.
    Case(
        "BAAF, full gradients",
        theory.theorem_1,
        baaf(**_FULL),
        Channel(0.0),
        (50, 200, 800),
        {"users": 20, "spread": 1.0},
    ),
)


@dataclasses.dataclass(frozen=True)
class Bounds:
    """What `jaxota run bounds` found."""

    seed: int
    trials: int
    found: dict[str, tuple[Case, Beside]]  # by the case's label

    def intervals(self, label: str) -> stats.Interval:
        """Of F(θ̄^R) − F* [draw, R]."""
        return stats.interval(np.moveaxis(self.found[label][1].gap, -1, 0))

    def violations(self, label: str) -> np.ndarray:
        """[draw, R] where all conditions hold and the whole interval lies above the bound."""
        bound = self.found[label][1].bound
        return np.asarray(bound.applies) & (self.intervals(label).low > np.asarray(bound.total))

    def worst(self, label: str) -> int:
        """The data draw whose gap comes closest to its bound, or exceeds it most."""
        bound = self.found[label][1].bound
        ratio = self.intervals(label).mean / np.asarray(bound.total)
        return int(np.argmax(np.where(bound.applies, ratio, 0.0).max(1)))

    def caption(self) -> str:
        return (
            "bounds: the theorems beside simulation, well-conditioned least squares, one run for "
            f"each R at the proofs' step size; {DRAWS} data draws, {self.trials} trials, "
            f"SNR per vector, seed {self.seed}"
        )

    def table(self):
        """A line for each case and R: the worst data draw's gap, its bound and its largest term."""
        from rich.table import Table

        grid = Table()
        for heading in ("algorithm", "R", "conditions"):
            grid.add_column(heading)
        for heading in ("gap", "bound", "gap/bound", "largest term", "draws above the bound"):
            grid.add_column(heading, justify="right")
        for label, (case, found) in self.found.items():
            means, draw = self.intervals(label).mean, self.worst(label)
            terms = {k: np.asarray(v)[draw] for k, v in found.bound.terms.items()}
            total = np.asarray(found.bound.total)[draw]
            for j, r in enumerate(case.rounds):
                largest = max(terms, key=lambda k, j=j: terms[k][j])
                grid.add_row(
                    label,
                    str(r),
                    _conditions(found.bound, draw, j),
                    f"{means[draw, j]:.3g}",
                    f"{total[j]:.3g}",
                    f"{means[draw, j] / total[j]:.2g}",
                    f"{largest.replace('_', ' ')} {terms[largest][j] / total[j]:.0%}",
                    f"{int(self.violations(label)[:, j].sum())} of {DRAWS}",
                )
        return grid

    def remarks(self) -> list[str]:
        """What a reader of the table must know besides: where a statement fails, and why."""
        lines = [
            "Of each algorithm the data draw whose gap comes closest to its bound. A draw is above "
            "the bound if all conditions hold and its whole 95 % interval lies above."
        ]
        for label, (case, found) in self.found.items():
            name = case.theorem.__name__.replace("theorem_", "Theorem ")
            above = self.violations(label)
            if above.any():
                ratio = self.intervals(label).mean / np.asarray(found.bound.total)
                lines.append(
                    f"{label}: {name} is VIOLATED at {int(above.sum())} of {above.size} (draw, R), "
                    f"by up to {ratio[above].max():.2g} times. Its proof takes the MMSE estimate "
                    "to be unbiased with the error of Prop. 1; the plan's prior takes users as "
                    "independent, and the estimate is pulled to the prior's mean."
                )
            else:
                lines.append(f"{label}: {name} holds wherever its conditions do.")
            if (found.excess > 1).any():
                lines.append(
                    f"{label}: max_i E‖Δ_i‖² reaches {found.excess.max():.2f}·(KηM)²; the proof "
                    "takes it to be at most 1."
                )
            lines.append(f"{label}: power ratio up to {found.power.max():.3g}.")
        return lines

    def figure(self):
        title = (
            f"Bounds beside simulation; worst of {DRAWS} data draws (others thin), "
            f"{self.trials} trials, 95 % bands, SNR per vector"
        )
        panels = {}
        for label, (case, found) in self.found.items():
            draw = self.worst(label)
            name = case.theorem.__name__.replace("theorem_", "Theorem ")
            panels[f"{label}\n{name}, {float(case.channel.snr_db):g} dB"] = theory_plots.BoundPanel(
                rounds=np.asarray(case.rounds),
                gap=self.intervals(label),
                draw=draw,
                bound=np.asarray(found.bound.total),
                terms={
                    k.replace("_", " "): np.asarray(v)[draw] for k, v in found.bound.terms.items()
                },
                applies=np.asarray(found.bound.applies),
                violated=self.violations(label),
            )
        return theory_plots.bounds(panels, title)

    def rows(self):
        """The rows of the CSV, header first: one for each algorithm, data draw and R."""
        yield [
            *("algorithm", "theorem", "draw", "rounds", "gap", "ci_low", "ci_high", "bound"),
            *theory.TERMS,
            *("step_size", "largest_step", "least_rounds", "logarithm", "applies", "violated"),
            *("power_ratio", "update_ratio"),
        ]
        for label, (case, found) in self.found.items():
            band, above, bound = self.intervals(label), self.violations(label), found.bound
            for draw in range(DRAWS):
                for j, r in enumerate(case.rounds):
                    at = functools.partial(_at, draw=draw, j=j)
                    yield [
                        *(label, case.theorem.__name__, draw, r),
                        *map(at, (band.mean, band.low, band.high, bound.total)),
                        *map(at, bound.terms.values()),
                        *map(at, (bound.step_size, bound.largest_step, bound.least_rounds)),
                        at(bound.logarithm),
                        *(bool(np.asarray(bound.applies)[draw, j]), bool(above[draw, j])),
                        *map(at, (found.power, found.excess)),
                    ]

    def dataset(self):
        """Everything as one `xarray.Dataset`: [algorithm, draw, rounds, trial]."""
        import xarray  # slow to import, needed here alone

        whole = []
        for label, (case, found) in self.found.items():
            flat = {
                "bound": found.bound.total,
                **found.bound.terms,
                **{
                    k: getattr(found.bound, k)
                    for k in ("step_size", "largest_step", "least_rounds", "logarithm", "applies")
                },
                **{f"constant_{k}": v for k, v in vars(found.constants).items()},
                "violated": self.violations(label),
                "power_ratio": found.power,
                "update_ratio": found.excess,
            }
            variables = {k: (("draw", "rounds"), np.asarray(v, float)) for k, v in flat.items()}
            variables["gap"] = (("draw", "rounds", "trial"), np.asarray(found.gap))
            part = xarray.Dataset(variables, {"rounds": list(case.rounds)})
            whole.append(part.expand_dims(algorithm=[label]))
        return xarray.concat(whole, dim="algorithm", data_vars="all", join="outer").assign_attrs(
            **attributes("bounds", self.seed, self.caption())
        )


def run_bounds(seed: int = 0, trials: int = 20, report=lambda *_: None) -> Bounds:
    """Every case of `CASES` on `DRAWS` data draws; `report(what, done, of)` hears how far it is."""
    seed, trials = checked_seed(seed), checks.whole("trials", trials, 2)
    found = {}
    for number, case in enumerate(CASES):
        report(case.label, number, len(CASES))
        task = well_conditioned(seed, DRAWS, **case.task)
        key = jax.random.key(seed)
        run = case.theorem, key, case.algorithm, case.channel, task, case.rounds, trials
        found[case.label] = case, beside(*run)
    return Bounds(seed, trials, found)


def _at(values, draw: int, j: int) -> str:
    return f"{float(np.asarray(values)[draw, j]):.9g}"


def _conditions(bound: theory.Bound, draw: int, j: int) -> str:
    """'met', or what is not."""
    unmet = [k for k, v in bound.conditions.items() if not np.asarray(v)[draw, j]]
    needed = f"R ≥ {np.asarray(bound.least_rounds)[draw, j]:.0f}"
    names = {"rounds": needed, "step_size": "step size", "logarithm": "logarithm 0"}
    return "met" if not unmet else "not met: " + ", ".join(names[k] for k in unmet)


def checked_seed(seed) -> int:
    """A seed that a key and NumPy both take."""
    seed = checks.whole("seed", seed, 0)
    if seed >= 2**32:
        raise ValueError(f"seed must be < 2**32, got {seed}")
    return seed


def attributes(name: str, seed: int, title: str) -> dict:
    """What a dataset says of itself."""
    versions = {"jaxota": jaxota.__version__, "jax": jax.__version__}
    return {"title": title, "experiment": name, "seed": seed, **versions}
