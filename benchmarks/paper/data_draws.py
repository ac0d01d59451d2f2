"""Independent data draws, and intervals over them that assume nothing of the law of what is drawn.

Trials of all settings of a study share their noise, so that settings are paired. Over draws that
would make all of them err alike: here each draw has noise of its own, which all algorithms and
other settings on that draw share.
"""

import math
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from scipy import special

from jaxota._core import prng as _random
from jaxota._core.part import Traced, part, traced
from jaxota.study.grid import Axis


@part
class Renewed:
    """White Gaussian noise, other noise for each `draw`."""

    draw_number: Traced[Int[Array, ""]] = traced(default=0, dtype="int32")

    gaussian = True

    def draw(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
        """Independent draws of variance 1."""
        return _random.normal(_random.fold_in(key, self.draw_number), shape)


def axis(key: PRNGKeyArray, count: int) -> Axis:
    """So many draws of a task's data, each with noise of its own over a channel of `Renewed`."""
    numbers = tuple(range(count))
    keys = tuple(jax.random.fold_in(key, number) for number in numbers)
    return Axis("draw", {"task.key": keys, "draw_number": numbers}, numbers)


class Between(NamedTuple):
    """An interval, and the probability with which such an interval holds what it is of."""

    low: float
    high: float
    level: float


def wilson(count: int, of: int, level: float) -> Between:
    """Of a share, from `count` successes `of` so many (Wilson, 1927)."""
    z = float(special.ndtri(0.5 + level / 2))
    share, weight = count / of, z**2 / of
    centre = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * math.sqrt(share * (1 - share) / of + weight / (4 * of))
    low = centre - half if count else 0.0  # without rounding at the ends
    return Between(low, centre + half if count < of else 1.0, level)


def median_interval(values: np.ndarray, level: float) -> Between:
    """Of the median of any law, between two order statistics of `values` [draw].

    Its `level` is what these reach: at least what is asked for, or, of too few values, all that
    the least and the largest reach.
    """
    ordered, count = np.sort(values), len(values)
    # P(fewer than k + 1 of them lie below the median) for k = 0, 1, …
    tails = special.bdtr(np.arange(count), count, 0.5)
    inside = int(np.sum(2 * tails[: (count + 1) // 2] <= 1 - level))
    first = max(inside, 1) - 1
    reached = max(0.0, 1.0 - 2.0 * float(tails[first]))
    return Between(float(ordered[first]), float(ordered[count - 1 - first]), reached)
