"""What is told and shown of `jaxota run bounds`."""

import dataclasses
import functools
from typing import Any

import numpy as np

from jaxota import stats, theory
from jaxota.cli.report import attributes
from jaxota.experiments import bounds, theory_plots
from jaxota.experiments.bounds import Case
from jaxota.theory.side_by_side import Beside

_CONDITIONS = (  # columns, in the order of `Bound.conditions`
    *("condition_step_size", "condition_rounds", "condition_logarithm"),
    *("condition_measured_step_size", "condition_measured_rounds"),
)
# Of `Beside`, what is held field by field, and which of these are yes or no.


@dataclasses.dataclass(frozen=True)
class Bounds:
    """What `jaxota run bounds` found."""

    name = "bounds"

    seed: int
    trials: int
    found: dict[str, tuple[Case, Beside]]  # by the case's label
    # Where there are violations: the least gap/bound [draw, R] of all step sizes that were tried,
    # NaN on data draws without any.
    least: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, seed: int, trials: int, dataset: Any) -> "Bounds":
        """From what the job of this seed and so many trials found."""
        found, least = {}, {}
        for case in bounds.CASES:
            here = dataset.sel(case=case.label).isel(R=slice(len(case.rounds)))
            held: dict[str, Any] = {k: np.ascontiguousarray(v.values) for k, v in here.items()}
            held |= {name: held[name] == 1 for name in bounds.FLAGS}
            parts = {
                k: part(**{f.name: held[f"{k}_{f.name}"] for f in dataclasses.fields(part)})
                for k, part in bounds.PARTS.items()
            }
            found[case.label] = (
                case,
                Beside(held["gap"], **parts, excess=held["excess"], power=held["power"]),
            )
            if not np.isnan(held["least"]).all():
                least[case.label] = held["least"]
        return cls(seed, trials, found, least)

    def intervals(self, label: str) -> stats.Interval:
        """Of F(θ̄^R) − F* [draw, R]."""
        return stats.interval(np.moveaxis(np.asarray(self.found[label][1].gap), -1, 0))

    def violations(self, label: str) -> np.ndarray:
        """[draw, R] where all conditions hold and the gap lies above the bound for certain."""
        return bounds.violated(self.found[label][1])

    def worst(self, label: str) -> int:
        """The data draw whose gap comes closest to its bound, or exceeds it most."""
        bound = self.found[label][1].bound
        ratio = self.intervals(label).mean / np.asarray(bound.total)
        return int(np.argmax(np.where(bound.applies, ratio, 0.0).max(1)))

    def caption(self) -> str:
        return (
            "bounds: the theorems beside simulation, well-conditioned least squares, one run for "
            f"each R at the proofs' step size; {bounds.DRAWS} data draws, {self.trials} trials, "
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
                each = {k: v[j] for k, v in terms.items()}
                largest = max(each, key=each.__getitem__)
                grid.add_row(
                    label,
                    str(r),
                    _conditions(found.bound, draw, j),
                    f"{means[draw, j]:.3g}",
                    f"{total[j]:.3g}",
                    f"{means[draw, j] / total[j]:.2g}",
                    f"{largest.replace('_', ' ')} {terms[largest][j] / total[j]:.0%}",
                    f"{int(self.violations(label)[:, j].sum())} of {bounds.DRAWS}",
                )
        return grid

    def remarks(self) -> list[str]:
        """What a reader of the table must know besides: where a statement fails, and why."""
        lines = [
            "Of each algorithm the data draw whose gap comes closest to its bound. A draw is above "
            f"the bound if all conditions hold and its mean lies {bounds.ERRORS} standard errors "
            "above."
        ]
        for label, (case, found) in self.found.items():
            lines += [f"{label}: {words}" for words in self._words(label, case, found)]
        return lines

    def _words(self, label: str, case: Case, found: Beside):
        name = case.theorem.__name__.replace("theorem_", "Theorem ")
        above, applies = self.violations(label), np.asarray(found.bound.applies)
        if above.any():
            ratio = found.gap.mean(-1) / np.asarray(found.bound.total)
            yield (
                f"{name} is VIOLATED at {int(above.sum())} of {int(applies.sum())} (draw, R) that "
                f"meet its conditions, by up to {ratio[above].max():.2g} times, at the proofs' "
                f"step size: {case.cause}."
            )
            if label in self.least:
                least = self.least[label][above]
                yield (
                    f"of {1 + len(bounds.OTHER_STEPS)} step sizes the best still leaves "
                    f"{int((least > 1).sum())} of these above, by up to {least.max():.2g} times."
                )
        elif applies.any():
            yield f"{name} holds at all {int(applies.sum())} (draw, R) that meet its conditions."
        else:
            yield f"no R meets the conditions of {name}."
        adrift = int((~np.isfinite(found.gap)).any((0, 1)).sum())
        if adrift:
            yield f"{adrift} of {self.trials} trials diverged; where they did, nothing is compared."
        if (found.excess > 1).any():
            yield (
                f"max_i E‖Δ_i‖² reaches {found.excess.max():.2f}·(KηM)²; the proof takes it to be "
                "at most 1."
            )
        yield f"power ratio up to {found.power.max():.3g}."

    def figure(self):
        title = (
            f"Bounds beside simulation; worst of {bounds.DRAWS} data draws (others thin), "
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
            *("step_size", "largest_step", "least_rounds", "logarithm", *_CONDITIONS, "applies"),
            *("violated", "power_ratio", "update_ratio"),
        ]
        for label, (case, found) in self.found.items():
            band, above, bound = self.intervals(label), self.violations(label), found.bound
            for draw in range(bounds.DRAWS):
                for j, r in enumerate(case.rounds):
                    at = functools.partial(_at, draw=draw, j=j)
                    yield [
                        *(label, case.theorem.__name__, draw, r),
                        *map(at, (band.mean, band.low, band.high, bound.total)),
                        *map(at, bound.terms.values()),
                        *map(at, (bound.step_size, bound.largest_step, bound.least_rounds)),
                        at(bound.logarithm),
                        *(bool(np.asarray(v)[draw, j]) for v in bound.conditions.values()),
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
                **dict(zip(_CONDITIONS, found.bound.conditions.values(), strict=True)),
                **{f"constant_{k}": v for k, v in vars(found.constants).items()},
                "violated": self.violations(label),
                "power_ratio": found.power,
                "update_ratio": found.excess,
            }
            variables: dict[Any, Any] = {
                k: (("draw", "rounds"), np.asarray(v, float)) for k, v in flat.items()
            }
            variables["gap"] = (("draw", "rounds", "trial"), np.asarray(found.gap))
            part = xarray.Dataset(variables, {"rounds": list(case.rounds)})
            whole.append(part.expand_dims(algorithm=[label]))
        return xarray.concat(whole, dim="algorithm", data_vars="all", join="outer").assign_attrs(
            **attributes("bounds", self.seed, self.caption())
        )


def _at(values, draw: int, j: int) -> str:
    return f"{float(np.asarray(values)[draw, j]):.9g}"


def _conditions(bound: theory.Bound, draw: int, j: int) -> str:
    """'met', or what is not."""
    unmet = [k for k, v in bound.conditions.items() if not np.asarray(v)[draw, j]]
    needed = f"R ≥ {np.asarray(bound.least_rounds)[draw, j]:.0f}"
    names = {
        "rounds": needed,
        "step_size": "step size",
        "logarithm": "logarithm 0",
        "measured_step_size": "constants of another step size",
        "measured_rounds": "constants of far fewer rounds",
    }
    return "met" if not unmet else "not met: " + ", ".join(names[k] for k in unmet)
