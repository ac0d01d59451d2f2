"""Floors against N, SNR and S on logarithmic axes, with the slopes that the theorems state."""

import matplotlib
import numpy as np

import jaxota as jo


def draw(panels, title):
    """Draw a panel for each swept quantity; thin lines have the slope of the theorem."""
    curves = {
        (label, str(name)): panel.sel(algorithm=name)
        for label, panel in panels.items()
        for name in panel.algorithm.values
    }
    bands = {key: _band(curve) for key, curve in curves.items()}
    with matplotlib.rc_context(jo.style.rc_params()):
        figure, row = jo.style.subplots(len(panels), 2.9)
        looks = jo.style.looks(name for _, name in curves)
        floor = jo.style.log_floor(list(bands.values()))
        for axes, (label, panel) in zip(row, panels.items(), strict=True):
            values, slopes = panel.value.values, []
            for name in map(str, panel.algorithm.values):
                curve, band = curves[label, name], bands[label, name]
                jo.style.curve(axes, looks[name], name, values, band, floor, every=1)
                stated = float(curve.theorem_exponent)
                guide = band.mean[0] * (values / values[0]) ** stated
                axes.plot(values, guide, "-", color=looks[name].colour, lw=0.5, alpha=0.8)
                slope = float(curve.exponent)
                slope = f"{slope:.2f}" if np.isfinite(slope) else "none"
                slopes.append(f"{name}: {slope} (theorem {stated:.2f})")
            jo.style.label_axes(axes, label, "slopes\n" + "\n".join(slopes))
            axes.title.set_fontsize(6.5)
            axes.set_xscale("log")
            axes.set_xticks(values, [f"{value:g}" for value in values], minor=False)
            axes.set_xticks([], minor=True)
        row[-1].plot([], [], "-", color="0.4", lw=0.5, label="slope of the theorem")
        row[0].set_yscale("log")
        row[0].set_ylim(bottom=floor)
        for axes in row[:: jo.style.columns(len(row), 1)]:
            axes.set_ylabel("gap that the channel adds")
        handles, labels = jo.style.legend_entries(row)
        across = jo.style.columns(5, 2)
        figure.legend(handles, labels, loc="outside lower center", ncols=across, handlelength=3.2)
        jo.style.figure_title(figure, f"{title}, 95 % bands")
    return figure


def _band(curve):
    """The floors of a curve as an interval; none of its draws is left out."""
    ends = (curve[name].values for name in ("floor", "ci_low", "ci_high"))
    return jo.stats.Interval(*ends, used=1, trials=1)
