"""What is told and shown of `jaxota run wise`, `offmap` and `rivals`."""

import dataclasses
from typing import Any

import numpy as np

from jaxota.cli.report import attributes
from jaxota.experiments import wise
from jaxota.experiments.wise import REGIME, Map

MARGIN = 1.05  # a ratio up to which WISE counts as no worse


def against(name: str) -> dict[str, tuple[list[str], bool]]:
    """What WISE is compared with: names of algorithms, and whether they choose in hindsight."""
    if name != "rivals":
        base = list(wise.baselines())
        return {"same step size": (base, False), "best in hindsight": (base, True)}
    groups = {group: list(each) for group, each in wise.rivals().items()}
    every = [name for group in groups.values() for name in group]
    return {group: (each, True) for group, each in groups.items()} | {"all": (every, True)}


@dataclasses.dataclass(frozen=True)
class Wise:
    """A map: ratios to the best of those that WISE is against."""

    name: str
    seed: int
    trials: int
    ratios: dict[str, Any]  # [shape, spread, snr_db, draw, round]
    spent: dict[
        str, tuple[float, ...]
    ]  # by algorithm, its mean power over P, and its coded scalars

    @classmethod
    def of(cls, name: str, seed: int, trials: int, dataset: Any) -> "Wise":
        """From what the job of this name, seed and so many trials found."""
        found = wise.labelled(dataset)
        ratios = {k: wise.ratios(found, *of).load() for k, of in against(name).items()}
        here = dataset.sel(step_size=wise.STEP_SIZE)
        means = here[["mean_power_mean", "reports_mean"]].mean("round")
        spent = {
            str(label): tuple(float(x) for x in means.sel(algorithm=label).median().values())
            for label in dataset.algorithm.values
        }
        return cls(name, seed, trials, ratios, spent)

    @property
    def regimes(self) -> Map:
        return wise.MAPS[self.name]

    def caption(self) -> str:
        rivals = "its rivals" if self.name == "rivals" else "noisy FedAvg, COTAF, BAAF and COBAAF"
        return (
            f"{self.name}: the final gap of WISE over that of the best of {rivals}, "
            f"{self.regimes.regimes} regimes of synthetic regression, {self.regimes.rounds} "
            f"rounds, {wise.DRAWS} new data draws, {self.trials} trials each, seed {self.seed}"
        )

    def table(self):
        """A line for each that it is against."""
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
                f"{geometric(middle):.3g}",
                f"{float(middle.max()):.3g}",
                f"{float(last.max()):.3g}",
            )
        return grid

    def remarks(self) -> list[str]:
        """What a reader of the table must know besides."""
        lines = [
            "A regime's ratio is the median over data draws of WISE's mean gap over that of the "
            f"best competitor. WISE has one setting, η = {wise.STEP_SIZE:g}. In hindsight, as all "
            "but the same step size are, competitors have regime by regime and draw by draw the "
            f"best of {_list(wise.STEP_SIZES)}, and the better of last model and weighted average.",
            self._spending(),
        ]
        for name, ratios in self.ratios.items():
            last = ratios.isel(round=-1)
            middle = last.median("draw")
            lines.append(
                f"Worst against {name}: {self._place(middle)}. Of single draws "
                f"{int((last > MARGIN).sum())} of {last.size} lie above {MARGIN:g}, the worst "
                f"{self._place(last)}."
            )
            course = ratios.median("draw")
            shares = (course <= MARGIN).mean(REGIME)
            words = [
                f"{float(s):.0%} after {int(r)}"
                for s, r in zip(shares, course["round"], strict=True)
            ]
            lines.append(
                f"Share of regimes at or below {MARGIN:g} against {name}, by round: "
                f"{', '.join(words)}."
            )
        return lines

    def _spending(self) -> str:
        words = [f"{k} {power:.2g} and {n:g}" for k, (power, n) in self.spent.items()]
        return (
            f"At η = {wise.STEP_SIZE:g}, mean power on the model block over P (the median of all "
            f"regimes and draws) and coded scalars a user and round: {'; '.join(words)}."
        )

    def figure(self):
        """For each shape a map over SNR and spreads, and the ratio's course over the rounds."""
        from jaxota.experiments.wise_plots import maps  # which loads matplotlib

        title = (
            f"WISE over the best of {'its rivals' if self.name == 'rivals' else 'the baselines'}: "
            f"median over {wise.DRAWS} data draws, {self.trials} trials each; regimes above 1 are "
            "framed"
        )
        return maps(self.ratios, self.regimes, title)

    def rows(self):
        """The rows of the CSV, header first: one for each regime, draw and round."""
        regime = "users", "steps", "dim", "batch", "data_spread", "model_spread", "snr_db"
        yield ["against", *regime, "draw", "round", "ratio"]
        for name, ratios in self.ratios.items():
            stacked = ratios.stack(row=(*REGIME, "draw", "round"))
            for value, place in zip(stacked.values, stacked.row.values, strict=True):
                shape, spread, *others = place
                users, steps, dim, batch = self.regimes.shapes[int(shape)]
                numbers = (*self.regimes.spreads[int(spread)], *others)
                told = (users, steps, dim, "all" if batch is None else batch)
                yield [name, *told, *(f"{x:g}" for x in numbers), f"{value:.9g}"]

    def dataset(self):
        """The ratios as one `xarray.Dataset`."""
        import xarray  # slow to import, needed here alone

        names = {name: name.replace(" ", "_") for name in self.ratios}
        return xarray.Dataset(
            {f"ratio_{names[k]}": v for k, v in self.ratios.items()},
            attrs=attributes(self.name, self.seed, self.caption()),
        )

    def _place(self, ratios: Any) -> str:
        """The largest, and where it is."""
        at = ratios.where(ratios == ratios.max(), drop=True)
        shape = self.regimes.shapes[int(at["shape"][0])]
        spreads = self.regimes.spreads[int(at["spread"][0])]
        where = f"{float(at.snr_db[0]):g} dB, spreads {_list(spreads)}, {shape.words()}"
        return f"{float(at.max()):.3g} at {where}"


def geometric(ratios: Any) -> float:
    """The geometric mean of those that are finite and not 0."""
    values = np.asarray(ratios)
    values = values[np.isfinite(values) & (values > 0)]
    return float(np.exp(np.log(values).mean())) if values.size else np.nan


def _list(values) -> str:
    return ", ".join(f"{x:g}" for x in values)
