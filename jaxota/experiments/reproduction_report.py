"""What is told and shown of `jaxota run reproduction`."""

import dataclasses
from typing import Any

import numpy as np

from jaxota.cli.report import attributes
from jaxota.experiments import designs, reproduction_plots, reproduction_runs
from jaxota.experiments.claims import SCAFFOLD, Part
from jaxota.experiments.reproduction import FAMILIES, Family
from jaxota.experiments.reproduction_effects import Judged, MainEffect
from jaxota.tasks.images import Images

MOST = 3  # choices that a line of the table names
ROMAN = {3: "III", 4: "IV", 5: "V"}


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """Every part of the claims, at all settings of both families."""

    name = "reproduction"

    seed: int
    trials: int
    title: str  # of the images
    found: Any  # scores and powers [figure, draw, algorithm, setting, …]
    judged: dict[str, Judged]

    @classmethod
    def of(cls, seed: int, trials: int, dataset: Any, images: Images) -> "Reproduction":
        """From what the job of this seed and so many trials found."""
        found = dataset.load()
        judged = {k: Judged.of(f, found) for k, f in FAMILIES.items()}
        return cls(seed, trials, images.title, found, judged)

    @property
    def _parts(self) -> list[tuple[Judged, Part]]:
        return [(judged, part) for judged in self.judged.values() for part in judged.family.parts]

    def _data(self, family: Family) -> str:
        return self.title if family.name == "images" else "synthetic regression"

    def caption(self) -> str:
        told = []
        for judged in self.judged.values():
            family = judged.family
            trials = reproduction_runs.trials_of(family, self.trials)
            told.append(
                f"{len(family.design)} settings of {len(family.choices)} choices on "
                f"{self._data(family)} ({family.draws} data draws, trials of each: {trials}; of "
                f"calibration: {family.calibration_trials})"
            )
        return (
            f"reproduction: the paper's claims under what it leaves open, SNR "
            f"{reproduction_runs.SNR_DB:g} dB: {', '.join(told)}, seed {self.seed}"
        )

    def table(self):
        """A line for each part."""
        from rich.table import Table

        grid = Table(show_lines=False)
        grid.add_column("claim")
        for heading in ("settings", "share"):
            grid.add_column(heading, justify="right")
        grid.add_column("turns most on (change of the share of draws, %)")
        before = 0
        for judged, part in self._parts:
            if before not in (0, part.claim):
                grid.add_section()
            before = part.claim
            count, of, (low, high, _) = judged.share(part)
            share = f"{100 * count / of:.0f} [{100 * low:.0f}, {100 * high:.0f}] %"
            sure = [effect for effect in judged.main_effects(part) if effect.sure]
            most = sorted(sure, key=lambda effect: -abs(effect.change))[:MOST]
            turns = "; ".join(map(_told, most)) or "–"
            grid.add_row(f"({part.name}) {part.words}", f"{count} of {of}", share, turns)
        return grid

    def remarks(self) -> list[str]:
        effects = sum(len(judged.main_effects(part)) for judged, part in self._parts)
        lines = [
            "A part holds on a setting if it does on more than half of its data draws; shares are "
            "of the settings of the design, with Wilson's 95 % interval, which takes them as a "
            "sample of such settings.",
            "Changes are main effects: the mean over the design at another choice minus that at "
            f"ours, with 95 % intervals over data draws, each by itself. Of all {effects}, about "
            f"{effects // 20} would leave out 0 if nothing mattered.",
        ]
        lines += [_designed(judged.family) for judged in self.judged.values()]
        lines.append(
            "A figure appears at a setting if all of its claims hold there; of (3a) and (3b), (4a) "
            "and (4b), (7b) and (7c), which read the same words, one will do. The most natural "
            "setting is that of fewest changes from ours; among equals, that of the largest "
            "margin, the least share of draws of its claims; then the first. Each change of "
            "structure by itself is run, too, beside the design. It is chosen by the draws that it "
            "is told of: where few draws decide, another seed may find another."
        )
        for judged in self.judged.values():
            lines += [self._appears(judged, figure) for figure in judged.family.figures]
        return [*lines, self._near_scaffold()]

    def _appears(self, judged: Judged, figure: str) -> str:
        place = judged.place(figure)
        words = judged.words(place.point)
        if not place.appears:
            return (
                f"{figure}: nothing in the design does it; nearest, {place.held} of {place.of} "
                f"claims: {words}."
            )
        power = self._power(judged, figure, place.point)
        at = "at our settings" if words == "ours" else f"at {words}"
        return (
            f"{figure} appears {at}, each claim on at least {100 * place.margin:.0f} % of the "
            f"draws; the largest power ratio there is {power:.3g}."
        )

    def _power(self, judged: Judged, figure: str, number: int) -> float:
        """Of what the claims read of a figure at a setting: median over draws."""
        family, point = judged.family, judged.family.points[number]
        names = {name for part in family.parts for f, name in part.read if f == figure}
        found = self.found.power_ratio.sel(figure=figure).isel(setting=family.setting(point))
        labels = [family.label(name, point) for name in names]
        return float(np.nanmax(found.sel(algorithm=labels).median("draw")))

    def _near_scaffold(self) -> str:
        """What it takes for COBAAF to come near SCAFFOLD on imbalanced images."""
        judged = self.judged["images"]
        (part,) = [part for part in judged.family.parts if part.name == "7d"]
        place = judged.first(part)
        ours, there = (self._accuracies(judged.family, n) for n in (0, place.point))
        words = f"({part.name}) {part.words}: at our settings {ours}. "
        if place.appears:
            return f"{words}It takes {judged.words(place.point)}: {there}."
        return (
            f"{words}Nothing in the design does it; nearest: {judged.words(place.point)}: {there}."
        )

    def _accuracies(self, family: Family, number: int) -> str:
        point = family.points[number]
        at = {"setting": family.setting(point), "evaluation": family.evaluation(point)}
        found = self.found.score.sel(figure="fig5").isel(at)
        words = []
        for name in ("COTAF", "COBAAF", SCAFFOLD):
            middle = found.sel(algorithm=family.label(name, point)).median("draw")
            words.append(f"{name.split(' (')[0]} {float(middle):.3f}")
        return ", ".join(words)

    def figure(self):
        return reproduction_plots.draw(self.judged, self.found)

    def rows(self):
        """The rows of the CSV, header first: of each part shares, effects, and where it holds."""
        yield ["part", "claim", "data", "quantity", "choice", "level", "value", "low", "high"]
        for judged, part in self._parts:
            lead = part.name, part.words, self._data(judged.family)
            count, of, (low, high, _) = judged.share(part)
            yield [*lead, "share of settings", "", "", *_numbers(count / of, low, high)]
            ours = float(judged.shares(part)[0])
            yield [*lead, "share of draws at our settings", "", "", *_numbers(ours)]
            for effect in judged.main_effects(part):
                yield [*lead, "main effect", *effect[:2], *_numbers(*effect[2:])]
            place = judged.first(part)
            kind = "holds with fewest changes at" if place.appears else "holds nowhere; nearest"
            yield [*lead, kind, judged.words(place.point), "", *_numbers(place.margin)]

    def dataset(self):
        """Scores and powers, and of each family levels of all settings, effects and shares."""
        import xarray  # slow to import, needed here alone

        whole = self.found[["score", "power_ratio"]].copy()
        for name, judged in self.judged.items():
            family = judged.family
            part, point = f"{name}_part", f"{name}_point"
            effects = np.stack([judged.effects[p.name] for p in family.parts])
            shares = np.stack([judged.shares(p) for p in family.parts])
            dims = point, f"{name}_choice"
            mine = {
                f"{name}_level": (dims, family.points),
                f"{name}_effect": ((part, point, f"{name}_draw"), effects),
                f"{name}_share": ((part, point), shares),
            }
            coords = {
                part: [p.name for p in family.parts],
                dims[1]: [choice.name for choice in family.choices],
                f"{name}_designed": (point, np.arange(len(family.points)) < len(family.design)),
            }
            whole = whole.merge(xarray.Dataset(mine, coords))
        return whole.assign_attrs(attributes("reproduction", self.seed, self.caption()))


def _told(effect: MainEffect) -> str:
    half = 100 * (effect.high - effect.low) / 2
    change = f"{100 * effect.change:+.0f}".replace("-", "−")
    return f"{effect.choice} {effect.level} {change} ± {half:.0f}"


def _numbers(*values: float) -> list[str]:
    return [f"{x:.6g}" for x in values] + [""] * (3 - len(values))


def _designed(family: Family) -> str:
    """A family's choices, ours first, and what its main effects are aliased with."""
    choices = "; ".join(f"{c.name} {' or '.join(c.levels)}" for c in family.choices)
    found = designs.aliases(family.choices)
    clear = ", ".join(name for name, pairs in found.items() if not pairs)
    mixed = "; ".join(f"{name} with {', '.join(pairs)}" for name, pairs in found.items() if pairs)
    size = designs.resolution(family.choices)
    own = [number for number, choice in enumerate(family.choices) if choice.touches]
    structures = len(np.unique(family.design[:, own], axis=0))
    return (
        f"{family.name}, ours first: {choices}. {len(family.design)} settings: the numbers in "
        f"full, each with an orthogonal array of {structures} structures; resolution "
        f"{ROMAN.get(size, 'above V')}. Clear of all interactions of two choices: "
        f"{clear or 'none'}. Aliased: {mixed or 'none'}."
    )
