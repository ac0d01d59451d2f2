"""Partitions: functions of a key, all labels, users and samples that say who holds which sample.

`dirichlet(0.3)(key, labels, users, samples)` returns the indices [D_i] of each user, in random
order, so that the first fifth (which calibration sees) is like the rest. No sample occurs twice, at
one user or at two, unless `replace=True` draws with replacement.
"""

import numbers
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from jaxota._core import capacity, inputs
from jaxota._core.part import Numbers, Seed
from jaxota.errors import InputError

Indices = list[Int[np.ndarray, "D_i"]]  # of each user
Partition = Callable[..., Indices]  # of (key, labels, users, samples)

_ALPHAS = 1e-300, 1e300  # alpha divides logarithms, which would overflow for less


def iid(replace: bool = False) -> Partition:
    """Give every user a uniform random draw of all samples.

    Args:
        replace: whether samples are drawn with replacement.
    """
    inputs.chosen("replace", replace, (False, True))

    def partition(key: Seed, labels: Numbers, users: int, samples: int) -> Indices:
        rng, labels = _start(key, labels, users, samples, replace)
        return list(rng.choice(len(labels), (users, samples), replace))

    return partition


def label_skew(share: float, replace: bool = False) -> Partition:
    """Give every user a `share` of samples with a label of its own, and draw the rest from all.

    User i's own label is the i-th; after the last label, the first one follows again.

    Args:
        share: 0 … 1; the paper's imbalanced data are `label_skew(0.2)`.
        replace: whether samples are drawn with replacement.
    """
    _check_number("share", share, 0, 1)
    inputs.chosen("replace", replace, (False, True))

    def partition(key: Seed, labels: Numbers, users: int, samples: int) -> Indices:
        rng, labels = _start(key, labels, users, samples, replace)
        pools = _Pools(rng, labels, replace)
        size = round(share * samples)
        own = [pools.take(user % len(pools), size) for user in range(users)]
        rest = pools.take_any(users * (samples - size)).reshape(users, -1)
        return [rng.permutation(np.concatenate(parts)) for parts in zip(own, rest, strict=True)]

    return partition


def dirichlet(alpha: float, replace: bool = False) -> Partition:
    """Draw every user's labels in proportions of its own, ~ Dirichlet(alpha, …, alpha).

    Where a label runs out, the user's other labels replace it in their proportions.

    Args:
        alpha: above 0; a small alpha is a strong skew.
        replace: whether samples are drawn with replacement.
    """
    _check_number("alpha", alpha, *_ALPHAS)
    inputs.chosen("replace", replace, (False, True))

    def partition(key: Seed, labels: Numbers, users: int, samples: int) -> Indices:
        rng, labels = _start(key, labels, users, samples, replace)
        pools = _Pools(rng, labels, replace)
        # In logarithms: for a small alpha all gamma variates of a user may underflow to 0.
        log_gamma = np.log(rng.gamma(alpha + 1.0, size=(users, len(pools))))
        log_gamma += np.log(rng.random((users, len(pools)))) / alpha
        proportions = np.exp(log_gamma - log_gamma.max(1, keepdims=True))
        return [rng.permutation(pools.take_in_proportion(p, samples)) for p in proportions]

    return partition


def shards(per_user: int) -> Partition:
    """Sort samples by label, cut them into equal shards, and give users random shards.

    Args:
        per_user: number of shards of each user.
    """
    inputs.whole("per_user", per_user, 1)

    def partition(key: Seed, labels: Numbers, users: int, samples: int) -> Indices:
        rng, labels = _start(key, labels, users, samples)
        if samples % per_user:
            raise InputError(
                f"samples must be a multiple of per_user = {per_user} shards, got {samples}"
            )
        chosen = rng.permutation(len(labels))[: users * samples]
        ordered = chosen[np.argsort(labels[chosen], kind="stable")]
        cut = ordered.reshape(users * per_user, -1)
        return [rng.permutation(held) for held in rng.permutation(cut).reshape(users, samples)]

    return partition


def quantity_skew(alpha: float, at_least: int = 1) -> Partition:
    """Give users unequal sizes D_i in proportions ~ Dirichlet(alpha, …, alpha), any labels.

    Args:
        alpha: above 0; a small alpha is a strong skew.
        at_least: least number of samples of a user; all users together hold users · samples.
    """
    _check_number("alpha", alpha, *_ALPHAS)
    inputs.whole("at_least", at_least, 1)

    def partition(key: Seed, labels: Numbers, users: int, samples: int) -> Indices:
        rng, labels = _start(key, labels, users, samples)
        if at_least > samples:
            raise InputError(f"at_least must be ≤ samples = {samples}, the mean, got {at_least}")
        spare = users * (samples - at_least)
        wanted = spare * rng.dirichlet(np.full(users, alpha))
        sizes = np.floor(wanted).astype(int)
        sizes[np.argsort(sizes - wanted)[: spare - sizes.sum()]] += 1  # the largest remainders
        ends = np.cumsum(at_least + sizes)[:-1]
        return np.split(rng.permutation(len(labels))[: users * samples], ends)

    return partition


class _Pools:
    """The samples of every label that no user holds yet, shuffled."""

    def __init__(self, rng: np.random.Generator, labels: np.ndarray, replace: bool) -> None:
        self.rng, self.replace = rng, replace
        self.pools = [
            rng.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)
        ]

    def __len__(self) -> int:
        return len(self.pools)

    def take(self, number: int, count: int) -> np.ndarray:
        pool = self.pools[number]
        if self.replace:
            return self.rng.choice(pool, count)
        if count > len(pool):
            raise InputError(
                f"samples must leave each user {count} of its own label, but only {len(pool)} are "
                "left: lower share or samples, or allow replace=True"
            )
        self.pools[number] = pool[count:]
        return pool[:count]

    def take_any(self, count: int) -> np.ndarray:
        """Take from all labels alike, without removing: this must come last."""
        return self.rng.choice(np.concatenate(self.pools), count, self.replace)

    def take_in_proportion(self, proportions: Float[np.ndarray, "label"], count: int) -> np.ndarray:
        taken = np.empty(0, int)
        while len(taken) < count:
            left = np.array([len(pool) for pool in self.pools])
            weights = np.where(left > 0, proportions, 0.0)
            weights = weights if weights.sum() > 0 else left  # its own labels have run out
            wanted = self.rng.multinomial(count - len(taken), weights / weights.sum())
            counts = wanted if self.replace else np.minimum(wanted, left)
            parts = [self.take(label, n) for label, n in enumerate(counts)]
            taken = np.concatenate([taken, *parts])
        return taken


def apply(partition: Any, key: Any, labels: Any, users: Any, samples: Any) -> Indices:
    """Call a partition, which may be a user's own, and check what it returns."""
    factories = iid, label_skew, dirichlet, shards, quantity_skew  # a frequent slip: `iid`, no ()
    if not callable(partition) or partition in factories:
        raise InputError(
            f"partition must be one such as jo.tasks.iid(), got {inputs.shown(partition)}"
        )
    _start(key, labels, users, samples, replace=True)
    key = inputs.key("key", key)
    try:
        indices = [np.asarray(held) for held in partition(key, labels, users, samples)]
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            "partition must give a list of indices of (key, labels, users, samples): "
            f"{inputs.first_line(error)}"
        ) from error
    if len(indices) != users:
        raise InputError(f"partition must give indices for {users} users, got {len(indices)}")
    for user, held in enumerate(indices):
        if held.ndim != 1 or not held.size or held.dtype.kind not in "iu":
            raise InputError(
                f"partition must give user {user} whole numbers [D_i ≥ 1], "
                f"got {held.dtype}{list(held.shape)}"
            )
        bad = held[(held < 0) | (held >= len(labels))]
        if bad.size:
            raise InputError(
                f"partition must give user {user} indices in 0 … {len(labels) - 1}, got {bad[0]}"
            )
    return indices


def _start(
    key: Seed, labels: Numbers, users: int, samples: int, replace: bool = False
) -> tuple[np.random.Generator, np.ndarray]:
    """Check the arguments of a partition; return NumPy's generator for `key`, and the labels."""
    labels = inputs.real("labels", labels)
    if labels.ndim != 1 or not labels.size:
        raise InputError(f"labels must have shape [sample ≥ 1], got {list(labels.shape)}")
    users, samples = inputs.whole("users", users, 1), inputs.whole("samples", samples, 1)
    if users * samples > len(labels) and not replace:
        raise InputError(
            f"users · samples must be ≤ {len(labels)}, the samples there are, got {users} · "
            f"{samples} = {users * samples}"
        )
    capacity.refuse_memory(
        "users · samples", f"the indices of {users} · {samples}", 8 * users * samples
    )
    seed = np.asarray(jax.random.key_data(inputs.key("key", key)))
    return np.random.default_rng(seed), labels


def _check_number(name: str, value: Any, least: float, most: float) -> None:
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not least <= value <= most:
        raise InputError(
            f"{name} must be a number in {least:g} … {most:g}, got {inputs.shown(value)}"
        )
