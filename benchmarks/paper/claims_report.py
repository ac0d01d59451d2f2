"""What is told and shown of `jaxota claims`."""

import dataclasses
from typing import Any

import numpy as np

from jaxota.cli.report import attributes
from jaxota.experiments import claims_page, claims_plots
from jaxota.experiments.claims import PRECODERS
from jaxota.experiments.claims_lines import Line, lines

DATA = ("csv", "md", "nc")


@dataclasses.dataclass(frozen=True)
class Claims:
    """Every part of the claims that were asked for, under both precoders.

    Attributes:
        said: of the data, if there is anything to say.
    """

    name = "claims"

    seed: int
    lines: list[Line]
    finals: dict[str, Any]  # of each kind of runs last scores and power [algorithm, figure, draw]
    said: str = ""

    @classmethod
    def of(cls, seed: int, parts: list, pairs: list, said: str = "") -> "Claims":
        """From what each of the runs left: pairs of both."""
        every = [line for runs, found in pairs for line in lines(parts, runs, found)]
        finals = {runs.name: found for runs, found in pairs}
        return cls(seed, every, finals, said)

    @property
    def _rows(self) -> list[dict[str, str]]:
        rows = [line.row() | {"seed": self.seed} for line in self.lines]
        return [{k: str(v) for k, v in row.items()} for row in rows]

    def caption(self) -> str:
        numbers = ", ".join(str(n) for n in dict.fromkeys(line.part.claim for line in self.lines))
        return (
            f"claims: {numbers} of the paper, at the settings of its figures, SNR 10 dB per "
            f"vector, seed {self.seed}"
        )

    def table(self):
        from rich.table import Table

        grid = Table(show_lines=False)
        for heading in claims_page.HEADINGS:
            right = heading in ("holds on", "power")
            grid.add_column(heading, justify="right" if right else "left")
        before = None
        for row in self._rows:
            first, *others = claims_page.cells(row)
            if before not in (None, row["part"][0]):
                grid.add_section()
            grid.add_row(first if row["precoder"] == "offline" else "", *others)
            before = row["part"][0]
        return grid

    def remarks(self) -> list[str]:
        return [*claims_page.notes(self._rows), *([self.said] if self.said else [])]

    def markdown(self) -> str:
        """The table and what a reader of it must know."""
        return claims_page.markdown(self._rows)

    def figure(self):
        return claims_plots.draw(self.lines)

    def rows(self):
        """The rows of the CSV, header first: one for each part and precoder."""
        rows = self._rows
        yield list(rows[0])
        for row in rows:
            yield list(row.values())

    def dataset(self):
        """Effects [part, precoder, draw], and the scores that they are of."""
        import xarray  # slow to import, needed here alone

        parts = list(dict.fromkeys(line.part.name for line in self.lines))
        most = max(len(line.effects) for line in self.lines)
        effects = np.full((len(parts), len(PRECODERS), most), np.nan)
        for line in self.lines:
            place = parts.index(line.part.name), PRECODERS.index(line.precoder)
            effects[place][: len(line.effects)] = line.effects
        whole = xarray.Dataset(
            {"effect": (("part", "precoder", "draw"), effects)},
            {"part": parts, "precoder": list(PRECODERS)},
        )
        for name, found in self.finals.items():
            renamed = {k: f"{name}_{k}" for k in (*found.data_vars, "algorithm", "figure", "draw")}
            whole = whole.merge(found.rename(renamed))
        return whole.assign_attrs(attributes("claims", self.seed, self.caption()))
