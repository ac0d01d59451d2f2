"""What is told and shown of `jaxota run wise`."""

import dataclasses
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from jaxota import _style
from jaxota.experiments import wise
from jaxota.experiments.report import attributes

MARGIN = 1.05  # a ratio up to which WISE counts as no worse
AGAINST = {
    "same step size": False,
    "best in hindsight": True,
}


@dataclasses.dataclass(frozen=True)
class Wise:
    """The map: ratios to the best baseline, by what it was allowed."""

    name = "wise"

    seed: int
    trials: int
    ratios: dict[str, Any]  # [setting, snr_db, users, steps, draw, round]

    @classmethod
    def of(cls, seed: int, trials: int, dataset: Any) -> "Wise":
        """From what the job of this seed and so many trials found."""
        found = {name: wise.ratios(dataset, late).load() for name, late in AGAINST.items()}
        return cls(seed, trials, found)

    def caption(self) -> str:
        regimes = len(wise.SNR_DB) * len(wise.SPREADS) * len(wise.USERS) * len(wise.STEPS)
        return (
            f"wise: the final gap of WISE over that of the best of noisy FedAvg, COTAF, BAAF and "
            f"COBAAF, {regimes} regimes of synthetic regression, d = 10, {wise.ROUNDS} rounds, "
            f"{wise.DRAWS} new data draws, {self.trials} trials each, seed {self.seed}"
        )

    def table(self):
        """A line for each that it is against, and the ratio's course over the rounds."""
        from rich.table import Table

        grid = Table()
        grid.add_column("against")
        for heading in (f"≤ {MARGIN:g}", "≤ 1", "geometric mean", "worst regime", "worst draw"):
            grid.add_column(heading, justify="right")
        for name, ratios in self.ratios.items():
            last = ratios.isel(round=-1)
            middle = last.median("draw")
            grid.add_row(
                name,
                f"{int((middle <= MARGIN).sum())} of {middle.size}",
                f"{int((middle <= 1).sum())}",
                f"{float(np.exp(np.log(middle).mean())):.3g}",
                f"{float(middle.max()):.3g}",
                f"{float(last.max()):.3g}",
            )
        return grid

    def remarks(self) -> list[str]:
        """What a reader of the table must know besides."""
        lines = [
            "A regime's ratio is the median over data draws of WISE's mean gap over that of the "
            f"best baseline. WISE has one setting, η = {wise.STEP_SIZE:g}; the same step size, or "
            f"in hindsight, regime by regime and draw by draw, the best of {_list(wise.STEP_SIZES)}"
            " and the better of last model and weighted average.",
        ]
        for name, ratios in self.ratios.items():
            last = ratios.isel(round=-1)
            middle = last.median("draw")
            lines.append(
                f"Worst against the {name}: {_regime(_largest(middle))}. Of single draws "
                f"{int((last > MARGIN).sum())} of {last.size} lie above {MARGIN:g}, the worst "
                f"{_regime(_largest(last))}."
            )
            course = ratios.median("draw")
            shares = (course <= MARGIN).mean(["setting", "snr_db", "users", "steps"])
            words = [
                f"{float(s):.0%} after {int(r)}"
                for s, r in zip(shares, course["round"], strict=True)
            ]
            lines.append(f"Share of regimes at or below {MARGIN:g}, by round: {', '.join(words)}.")
        return lines

    def figure(self):
        """For each (N, K) a map over SNR and spreads; regimes above 1 are framed."""
        columns = [(n, k) for n in wise.USERS for k in wise.STEPS]
        norm = LogNorm(0.02, 50.0)
        with matplotlib.rc_context(_style.fonts()):
            across = _style.columns(len(columns), 2)
            blocks = [columns[n : n + across] for n in range(0, len(columns), across)]
            places = [(block, name) for block in blocks for name in self.ratios]
            size = _style.width(2), 0.6 + 1.4 * len(places)
            figure = Figure(figsize=size, dpi=300, layout="constrained")
            grid = figure.subplots(len(places), across, sharex=True, sharey=True, squeeze=False)
            for row, (block, name) in zip(grid, places, strict=True):
                middle = self.ratios[name].isel(round=-1).median("draw")
                for axes, (users, steps) in zip(row, block, strict=False):
                    here = middle.sel(users=users, steps=steps).transpose("setting", "snr_db")
                    image = axes.imshow(
                        here.values, norm=norm, cmap="RdBu_r", aspect="auto", origin="lower"
                    )
                    _annotate(axes, here.values)
                    if name == next(iter(self.ratios)):
                        axes.set_title(f"$N$ = {users}, $K$ = {steps}", fontsize=7)
                for axes in row[len(block) :]:
                    axes.set_axis_off()
                row[0].set_ylabel(f"{name}\nspread of data, models", fontsize=6)
                row[0].set_yticks(
                    range(len(wise.SPREADS)), [f"{a:g}, {b:g}" for a, b in wise.SPREADS]
                )
            for axes in grid[-1]:
                axes.set_xticks(range(len(wise.SNR_DB)), [f"{x:g}" for x in wise.SNR_DB])
                axes.set_xlabel("SNR (dB)")
            bar = figure.colorbar(image, ax=grid, pad=0.01)
            bar.set_label("gap of WISE / best baseline")
            _style.head(
                figure,
                f"WISE over the best baseline: median over {wise.DRAWS} data draws, "
                f"{self.trials} trials each; regimes above 1 are framed",
            )
        return figure

    def rows(self):
        """The rows of the CSV, header first: one for each regime, draw and round."""
        regime = "data_spread", "model_spread", "snr_db", "users", "steps"
        yield ["against", *regime, "draw", "round", "ratio"]
        for name, ratios in self.ratios.items():
            stacked = ratios.stack(row=("setting", "snr_db", "users", "steps", "draw", "round"))
            for value, place in zip(stacked.values, stacked.row.values, strict=True):
                setting, *others = place
                spreads = wise.SPREADS[int(setting)]
                yield [name, *(f"{x:g}" for x in (*spreads, *others)), f"{value:.9g}"]

    def dataset(self):
        """The ratios as one `xarray.Dataset`."""
        import xarray  # slow to import, needed here alone

        names = {name: name.replace(" ", "_") for name in self.ratios}
        return xarray.Dataset(
            {f"ratio_{names[k]}": v for k, v in self.ratios.items()},
            attrs=attributes("wise", self.seed, self.caption()),
        )


def _annotate(axes, values: np.ndarray) -> None:
    for (y, x), value in np.ndenumerate(values):
        words = (
            "<.01" if value < 0.01 else f"{value:.2f}".lstrip("0") if value < 1 else f"{value:.3g}"
        )
        colour = "black" if 0.1 < value < 10 else "white"
        axes.text(x, y, words, ha="center", va="center", fontsize=4.5, color=colour)
        if value > 1:
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, lw=1.2))


def _largest(ratios: Any) -> Any:
    return ratios.where(ratios == ratios.max(), drop=True)


def _regime(place: Any) -> str:
    spreads = wise.SPREADS[int(place.setting[0])]
    return (
        f"{float(place.max()):.3g} at {float(place.snr_db[0]):g} dB, spreads {_list(spreads)}, "
        f"N = {int(place.users[0])}, K = {int(place.steps[0])}"
    )


def _list(values) -> str:
    return ", ".join(f"{x:g}" for x in values)
