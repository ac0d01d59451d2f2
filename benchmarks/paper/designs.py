"""Fractional designs: some of all settings of several choices, which tell main effects apart.

A design has 2^m runs, m basic factors. A column is a set of these, as the bits of a number: a run
is at its upper level where it has an odd number of them (Box and Hunter, 1961). Any two different
columns are orthogonal, and a product of columns is the column of their bits' exclusive or.
"""

import itertools
from collections.abc import Sequence
from typing import Protocol

import numpy as np

LONGEST = 6  # words that are looked for


class Column(Protocol):
    """What a design asks of a choice: its name, and one column, or two for three levels."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[int, ...]: ...


def levels(choices: Sequence[Column], factors: int) -> np.ndarray:
    """The level of each choice in each of 2^factors runs [run, choice]; run 0 has all at level 0.

    Two columns have four levels, of which the last is level 0 again: three levels, the first of
    them twice as often, and orthogonal to all other choices as before.
    """
    runs = np.arange(2**factors)
    found = []
    for choice in choices:
        odd = [_parity(runs & column) for column in choice.columns]
        found.append(sum(2**place * each for place, each in enumerate(odd)) % 3)
    return np.stack(found, 1)


def aliases(choices: Sequence[Column]) -> dict[str, list[str]]:
    """Of each choice the pairs of others whose interactions its main effect is not told from."""
    pairs = list(itertools.combinations(choices, 2))
    return {
        choice.name: [
            f"{one.name} × {other.name}"
            for one, other in pairs
            if choice not in (one, other) and _meet((choice, one, other))
        ]
        for choice in choices
    }


def resolution(choices: Sequence[Column]) -> int:
    """The length of the shortest word: how many choices' columns, one of each, multiply to 1.

    At III main effects are apart from each other, at IV also from interactions of two choices; a
    design without words up to `LONGEST` is said to have one more than these.
    """
    for length in range(1, LONGEST + 1):
        if any(_meet(some) for some in itertools.combinations(choices, length)):
            return length
    return LONGEST + 1


def _meet(some: Sequence[Column]) -> bool:
    """Whether columns of all of these, one of each, multiply to 1."""
    products = {0}
    for choice in some:
        products = {product ^ column for product in products for column in _span(choice)}
    return 0 in products


def _span(choice: Column) -> set[int]:
    """The columns of all its effects."""
    first, *others = choice.columns
    return {first} if not others else {first, others[0], first ^ others[0]}


def _parity(numbers: np.ndarray) -> np.ndarray:
    return np.array([int(n).bit_count() % 2 for n in numbers])
