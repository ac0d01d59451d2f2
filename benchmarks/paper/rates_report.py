"""What is told and shown of `jaxota run rates`."""

import dataclasses
from typing import Any

import numpy as np

from jaxota import stats
from jaxota.cli.report import attributes
from jaxota.experiments import rates, theory_plots


@dataclasses.dataclass(frozen=True)
class Rates:
    """What `jaxota run rates` found: curves by algorithm, by what is swept."""

    name = "rates"

    seed: int
    trials: int
    panels: dict[str, dict[str, theory_plots.RateCurve]]

    @classmethod
    def of(cls, seed: int, trials: int, dataset: Any) -> "Rates":
        """From what the job of this seed and so many trials found."""
        sweeps = rates._sweeps()

        def along(places):
            """Of each algorithm floors [draw, point] and the theorem's noise terms [point]."""
            return {
                name: tuple(
                    np.stack(
                        [dataset[k].sel(sweep=n, algorithm=name)[..., j] for n, j in places], -1
                    )
                    for k in ("floor", "promised")
                )
                for name in sweeps[places[0][0]].algorithms
            }

        by_users = [
            (f"N = {n}", sweeps[f"N = {n}"].snr_db.index(rates.SNR_DB)) for n in rates.SWEPT_USERS
        ]
        by_snr = [(f"N = {rates.USERS}", j) for j in range(len(rates.SWEPT_SNR_DB))]
        by_heard = [("participants", j) for j in range(len(rates.SWEPT_HEARD))]
        panels = {
            "users N": _curves(along(by_users), rates.SWEPT_USERS),
            "SNR P/σ²": _curves(along(by_snr), 10 ** (np.asarray(rates.SWEPT_SNR_DB) / 10)),
            f"participants S of {rates.USERS}": _curves(along(by_heard), rates.SWEPT_HEARD),
        }
        return cls(seed, trials, panels)

    def caption(self) -> str:
        return (
            f"rates: what the channel adds to the gap, full gradients, K = {rates.STEPS}, "
            f"d = {rates.DIM}, N = {rates.USERS}, {rates.SNR_DB:g} dB per vector unless swept; "
            f"{rates.DRAWS} data draws, {self.trials} trials each, seed {self.seed}"
        )

    def table(self):
        """A line for each swept quantity and algorithm: the fitted exponent and the theorem's."""
        from rich.table import Table

        grid = Table()
        for heading in ("against", "algorithm"):
            grid.add_column(heading)
        for heading in ("first floor", "last floor", "exponent", "theorem's"):
            grid.add_column(heading, justify="right")
        for label, panel in self.panels.items():
            for name, curve in panel.items():
                grid.add_row(
                    label,
                    name,
                    *(f"{curve.floor.mean[k]:.3g}" for k in (0, -1)),
                    f"{curve.slope:.2f} ± {curve.half_width:.2f}" if curve.fitted else "none",
                    f"{curve.promised:.2f}",
                )
        return grid

    def remarks(self) -> list[str]:
        """What a reader of the table must know besides."""
        curves = [curve for panel in self.panels.values() for curve in panel.values()]
        unfitted = (
            "Where a draw's floor is not above 0 there is no exponent: ask for more with --trials.",
        ) * any(not curve.fitted for curve in curves)
        return [
            *unfitted,
            "Floors are geometric means. Exponents are slopes of log floor on log value; the "
            "theorem's are those of its noise terms as stated, with σ_θ and σ_c of the plan, their "
            "logarithm left out. ± is a 95 % interval over data draws.",
            f"Kη = {rates.REACH:g} ({rates.SHORT_REACH:g} where S is swept) is within the "
            f"theorems' limits, M = {rates.M:g} above the gradients met, as measured for seed 0"
            + ("." if self.seed == 0 else "; for this seed nobody measured it."),
            "Theorems 2 and 3 state (1 + NK)/(KN²) for the control noise, about 1/N; the proof of "
            "Theorem 2 ends in (K + 2)/(KN²), 1/N². The identity's runs fall about as it says.",
            "With the MMSE estimate the floor is mostly its bias to the prior's mean (not on every "
            "draw at 20 dB or for few users), which the theorems leave out: their exponents are "
            "not its own.",
        ]

    def figure(self):
        title = (
            f"What the channel adds to the gap: full gradients, K = {rates.STEPS}, "
            f"N = {rates.USERS}, {rates.SNR_DB:g} dB per vector unless swept; "
            f"{rates.DRAWS} data draws, 95 % bands"
        )
        return theory_plots.rates(self.panels, title)

    def rows(self):
        """The rows of the CSV, header first: one for each point of each curve."""
        yield [
            *("against", "algorithm", "value", "floor", "ci_low", "ci_high"),
            *("exponent", "exponent_half_width", "theorem_exponent"),
        ]
        for label, panel in self.panels.items():
            for name, curve in panel.items():
                slopes = curve.slope, curve.half_width, curve.promised
                floor = curve.floor
                points = zip(curve.values, floor.mean, floor.low, floor.high, strict=True)
                for point in points:
                    yield [label, name, *(f"{float(x):.9g}" for x in (*point, *slopes))]

    def dataset(self):
        """Everything as one `xarray.Dataset`: [against, algorithm, point]."""
        import xarray  # slow to import, needed here alone

        names = list(dict.fromkeys(name for panel in self.panels.values() for name in panel))
        most = max(len(c.values) for panel in self.panels.values() for c in panel.values())
        axes = "against", "algorithm", "point"
        points = np.full((4, len(self.panels), len(names), most), np.nan)
        slopes = np.full((3, len(self.panels), len(names)), np.nan)
        for row, panel in enumerate(self.panels.values()):
            for name, curve in panel.items():
                floor, at = curve.floor, (row, names.index(name))
                columns = curve.values, floor.mean, floor.low, floor.high
                points[:, *at, : len(curve.values)] = columns
                slopes[:, *at] = curve.slope, curve.half_width, curve.promised
        heads: tuple[str, ...] = ("value", "floor", "ci_low", "ci_high")
        variables: dict[Any, Any] = {k: (axes, v) for k, v in zip(heads, points, strict=True)}
        heads = "exponent", "exponent_half_width", "theorem_exponent"
        variables |= {k: (axes[:2], v) for k, v in zip(heads, slopes, strict=True)}
        return xarray.Dataset(
            variables,
            {"against": list(self.panels), "algorithm": names},
            attributes("rates", self.seed, self.caption()),
        )


def _curves(found: dict, values) -> dict[str, theory_plots.RateCurve]:
    values = np.asarray(values, np.float64)
    pull = np.log(values) - np.log(values).mean()
    pull /= (pull**2).sum()  # the slope is this combination of the logarithms
    curves = {}
    for name, (samples, promised) in found.items():
        with np.errstate(invalid="ignore", divide="ignore"):  # a floor may come out below 0
            logs = np.where(samples > 0, np.log(samples), np.nan)
        band, slope = stats.interval(logs), stats.interval(logs @ pull)
        ends = np.exp(band.mean), np.exp(band.low), np.exp(band.high)
        curves[name] = theory_plots.RateCurve(
            values,
            stats.Interval(*ends, band.used, band.trials),
            float(slope.mean) if not slope.diverged else np.nan,
            float(slope.half_width),
            float(pull @ np.log(promised)),
        )
    return curves
