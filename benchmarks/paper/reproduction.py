"""Which of the choices that the paper leaves open do its claims depend on?

    jaxota run benchmarks/paper/reproduction.py [--trials 2] [--set only=regression]

Runs each figure as one study: its settings differ in numbers alone, and changes of structure are
algorithms side by side. The setting that the design chooses for a figure then runs on new data
draws: only these say on how many draws the figure appears there. `--trials` is for regression;
images have a quarter of them.
"""

import numpy as np
import pandas
import reproduction_plot
import xarray
from claim_parts import SCAFFOLD
from claims import chosen_images
from data_draws import NoisePerDraw, data_draws
from new_draws import (
    SNR_DB,
    held_on_new_draws,
    in_words,
    largest_power,
    mean_scores,
    snr_db,
    together,
)
from reproduction_design import FAMILIES, resolution, words
from reproduction_effects import Judged

import jaxota as jo

MOST = 3  # choices that a line of the table names
NEW_DRAWS = {"regression": 40, "images": 8}
ROMAN = {3: "III", 4: "IV", 5: "V"}


@jo.experiment("which choices left open the paper's claims depend on")
def reproduction(run, seed=0, trials=2, only="", dataset=None, data_dir=None):
    """Run all figures at all settings, find what the claims depend on, and try it on new draws."""
    if only not in ("", *FAMILIES):
        raise jo.InputError(f"only must be one of {', '.join(FAMILIES)}, got {only!r}")
    families = [family for name, family in FAMILIES.items() if only in ("", name)]
    parts = [part for family in families for part in family.parts]
    images, remark = chosen_images(parts, dataset, data_dir)
    scores, powers, judged, studies, found = {}, {}, {}, {}, {}
    for family in families:
        options = images if family.name == "images" else {}
        for figure in family.figures:
            studies[figure] = figure_study(family, figure, seed, trials, **options)
            ran = run(studies[figure])
            scores[figure] = mean_scores(ran).transpose(..., "evaluation", "draw")
            powers[figure] = largest_power(ran)
        each = judged[family.name] = Judged.from_scores(family, scores)
        for figure in family.figures:
            point = family.points[each.place_of_figure(figure).point]
            options["trials"] = studies[figure].trials
            found[figure] = new_shares(run, family, figure, point, seed, **options)
    data = {"regression": "synthetic regression"}
    data |= {"images": studies["fig4"].task.title} if "fig4" in studies else {}
    pairs = [(each, part) for each in judged.values() for part in each.family.parts]
    return jo.Report(
        name="reproduction",
        caption=caption(seed, studies, data),
        table=table(pairs),
        remarks=[*remarks(pairs, judged, scores, powers, found), *([remark] if remark else [])],
        dataset=to_dataset(judged, scores, powers),
        csv=rows(pairs, data, found),
        figure=lambda: reproduction_plot.draw(judged, scores, found),
    )


def figure_study(family, figure, seed, trials, **images):
    """A figure at all settings: one axis for each choice of numbers, then the data draws."""
    base = jo.figures.FIGURES[figure].study(seed, trials=trials, **images)
    dim = (base.task.build() if images else base.task).dim
    over = data_draws(base.task.key, family.draws)
    for choice in reversed(family.number_choices):
        values = snr_db(family, dim) if choice.name == "SNR" else choice.values
        tried = slice(choice.tried)
        over = jo.axis(choice.name, {choice.field: values[tried]}, choice.levels[tried]) * over
    return base.replace(
        algorithms=family.algorithms(figure),
        channel=base.channel.replace(noise=NoisePerDraw(), control_power=base.channel.power),
        rounds=family.rounds,
        trials=max(1, trials // family.shrink) if trials > 0 else trials,
        over=over,
        every=family.every,
        calibration_trials=family.calibration_trials,
        reference="",
        name=f"reproduction-{figure}",
    )


def new_shares(run, family, figure, point, seed, trials, **images):
    """Draws on which each part about a figure holds at a setting, and all together, of new ones."""
    draws = NEW_DRAWS[family.name]
    held = held_on_new_draws(run, family, point, (figure,), seed, trials, draws, **images)
    at = family.place(point)["evaluation"]
    held = {name: values[:, at] for name, values in held.items()}
    return held | {"jointly": together(held, family, (figure,))}


def caption(seed, studies, data):
    """One line that says what was run."""
    words = []
    for family in (FAMILIES[name] for name in FAMILIES if FAMILIES[name].figures[0] in studies):
        words.append(
            f"{len(family.design)} settings of {len(family.choices)} choices on "
            f"{data[family.name]} ({family.draws} data draws; trials per draw: "
            f"{studies[family.figures[0]].trials}; calibration trials: {family.calibration_trials})"
        )
    return (
        f"reproduction: the paper's claims under choices that it leaves open, SNR {SNR_DB:g} dB: "
        f"{', '.join(words)}, seed {seed}"
    )


def table(pairs):
    """Rows of cells: on how many settings a part holds, and the choices that change it most."""
    cells = [["claim", "settings", "share", "depends most on (change of the share of draws, %)"]]
    for judged, part in pairs:
        count, settings, (low, high, _) = judged.share_of_settings(part)
        share = f"{100 * count / settings:.0f} [{100 * low:.0f}, {100 * high:.0f}] %"
        decided = [effect for effect in judged.main_effects(part) if effect.decided]
        largest = sorted(decided, key=lambda effect: -abs(effect.change))[:MOST]
        name, depends = f"({part.name}) {part.words}", "; ".join(map(_in_words, largest)) or "–"
        cells.append([name, f"{count} of {settings}", share, depends])
    return cells


def remarks(pairs, judged, scores, powers, found):
    """Sentences under the table: how to read it, the designs, and where the figures appear."""
    effects = sum(len(each.main_effects(part)) for each, part in pairs)
    lines = [
        "A setting counts for a part if the part holds on more than half of its data draws, which "
        "are too few for a verdict on a single setting. Shares are of the settings of the design, "
        "with exact 95 % intervals, as if they were a sample of such settings.",
        "Changes are main effects: mean over the design at the other level minus mean at ours, "
        f"with 95 % intervals over data draws, uncorrected. Of all {effects}, about "
        f"{effects // 20} would exclude 0 if nothing mattered.",
        *(_design_in_words(each.family) for each in judged.values()),
        "A figure appears at a setting if all of its claims hold on most draws there; of (3a) and "
        "(3b), (4a) and (4b), (7b) and (7c), which read the same words, one is enough. The setting "
        "named is the one with the fewest changes from ours. The draws of the design chose it; the "
        "counts after it are of new draws, with exact 95 % intervals.",
    ]
    for each in judged.values():
        for figure in each.family.figures:
            lines.append(_appearance(each, figure, powers[figure], found[figure]))
    if "images" in judged:
        lines.append(_near_scaffold(judged["images"], scores["fig5"]))
    return lines


def _in_words(effect):
    half = 100 * (effect.high - effect.low) / 2
    change = f"{100 * effect.change:+.0f}".replace("-", "−")
    return f"{effect.choice} {effect.level} {change} ± {half:.0f}"


def _design_in_words(family):
    """The choices of a family, ours first, and which interactions confound their effects."""
    choices = "; ".join(f"{c.name} {' or '.join(c.levels[: c.tried])}" for c in family.choices)
    shortest = words(family.choices, resolution(family.choices))
    mixed = "; ".join(" · ".join(word) for word in shortest)
    structure = [number for number, choice in enumerate(family.choices) if choice.touches]
    structures = len(np.unique(family.design[:, structure], axis=0))
    roman = ROMAN.get(resolution(family.choices), "above V")
    return (
        f"{family.name}, ours first: {choices}. {len(family.design)} settings: all combinations of "
        f"the numbers, each with an orthogonal array of {structures} structures; resolution "
        f"{roman}, so that no main effect is mixed with an interaction of two choices. Shortest "
        f"words: {mixed or 'none'}."
    )


def _appearance(judged, figure, powers, new):
    """Say where a figure appears in the design, and on how many new draws it does there."""
    family, place = judged.family, judged.place_of_figure(figure)
    setting, point = judged.words(place), family.points[place.point]
    names = {name for part in family.parts for where, name in part.sources if where == figure}
    at = {name: index for name, index in family.place(point).items() if name != "evaluation"}
    labels = [family.label(name, point) for name in sorted(names)]
    power = float(np.nanmax(powers.sel(algorithm=labels).isel(at).median("draw")))
    where = "our settings" if setting == "ours" else setting
    start = f"{figure} appears in the design at {where}"
    if not place.appears:
        start = (
            f"{figure} appears nowhere in the design; nearest, {place.held} of {place.claims} "
            f"claims, is {where}"
        )
    *_, joint = new.values()
    counts = ", ".join(f"({name}) {int(v.sum())}" for name, v in new.items() if name != "jointly")
    verdict = jo.stats.verdict(int(joint.sum()), len(joint))
    return (
        f"{start} (largest power ratio {power:.3g}). There, of {len(joint)} new draws: {counts}; "
        f"jointly {in_words(joint.sum(), len(joint))}: {verdict}."
    )


def _near_scaffold(judged, scores):
    """Say what brings COBAAF near SCAFFOLD on imbalanced images."""
    family = judged.family
    (part,) = (part for part in family.parts if part.name == "7d")
    place = judged.place_of_part(part)

    def accuracies(point):
        at, words = family.place(point), []
        for name in ("COTAF", "COBAAF", SCAFFOLD):
            values = scores.sel(algorithm=family.label(name, point)).isel(at)
            words.append(f"{name.split(' (')[0]} {float(values.median('draw')):.3f}")
        return ", ".join(words)

    ours, best = accuracies(family.points[0]), accuracies(family.points[place.point])
    start = f"({part.name}) {part.words}: at our settings {ours}."
    if place.appears:
        return f"{start} It takes {judged.words(place)}: {best}."
    return f"{start} Nothing in the design does it; nearest: {judged.words(place)}: {best}."


def rows(pairs, data, found):
    """Tidy rows of the CSV: shares, main effects, where parts hold, and shares of new draws."""
    head = ["part", "claim", "data", "quantity", "choice", "level", "value", "low", "high"]
    lines = []
    for judged, part in pairs:
        lead = part.name, part.words, data[judged.family.name]
        count, settings, (low, high, _) = judged.share_of_settings(part)
        ours = float(judged.shares(part)[0])
        lines += [
            [*lead, "share of settings", "", "", count / settings, low, high],
            [*lead, "share of draws at our settings", "", "", ours, None, None],
            *([*lead, "main effect", *effect] for effect in judged.main_effects(part)),
        ]
        place = judged.place_of_part(part)
        kind = "holds with fewest changes at" if place.appears else "holds nowhere; nearest"
        lines.append([*lead, kind, judged.words(place), "", place.share, None, None])
        setting = judged.words(judged.place_of_figure(part.figure))
        for quantity, name in (("share", part.name), ("joint share", "jointly")):
            held = found[part.figure][name]
            low, high, _ = jo.stats.share(int(held.sum()), len(held))
            kind = f"{quantity} of new draws at the setting of {part.figure}"
            lines.append([*lead, kind, setting, "", held.mean(), low, high])
    return pandas.DataFrame(lines, columns=head)


def to_dataset(judged, scores, powers):
    """Scores and power ratios of each figure; levels, effects and shares of each family."""
    variables, coords = {}, {}
    for name, each in judged.items():
        family, part, point = each.family, f"{name}_part", f"{name}_point"
        effects = np.stack([each.effects[p.name] for p in family.parts])
        shares = np.stack([each.shares(p) for p in family.parts])
        variables[f"{name}_level"] = (point, f"{name}_choice"), family.points
        variables[f"{name}_effect"] = (part, point, f"{name}_draw"), effects
        variables[f"{name}_share"] = (part, point), shares
        coords[part] = [p.name for p in family.parts]
        coords[f"{name}_choice"] = [choice.name for choice in family.choices]
        designed = np.arange(len(family.points)) < len(family.design)
        coords[f"{name}_designed"] = point, designed
        for figure in family.figures:
            own = {dim: f"{name}_{dim}" for dim in scores[figure].dims if dim != "algorithm"}
            own["algorithm"] = f"{figure}_algorithm"
            variables[f"{figure}_score"] = scores[figure].rename(own)
            kept = {dim: own[dim] for dim in powers[figure].dims}
            variables[f"{figure}_power_ratio"] = powers[figure].rename(kept)
    return xarray.Dataset(variables, coords)
