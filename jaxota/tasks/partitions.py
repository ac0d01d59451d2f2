"""Who holds which sample: each partition is a function of a key, all labels, and sizes.

`dirichlet(0.3)(key, labels, users, samples)` returns the indices [D_i] that each user holds, in
random order, so that the first fifth (which calibration sees) is like the rest. No sample is held
twice, by one user or by two, unless `replace=True` asks for draws with replacement.
"""

import numbers
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from jaxota._core import batching
from jaxota._core import inputs as _validate
from jaxota.errors import InputError

Labels = Int[np.ndarray, "sample"]
Indices = list[Int[np.ndarray, "D_i"]]  # of each user
Partition = Callable[[PRNGKeyArray, Labels, int, int], Indices]  # (key, labels, users, samples)

_LEAST = 1e-300  # of alpha: where it divides logarithms, less would overflow


def iid(replace: bool = False) -> Partition:
    """Every user holds a shuffled draw of all samples.

    Args:
        replace: whether samples are drawn with replacement.
    """
    _validate.chosen("replace", replace, (False, True))

    def partition(key: PRNGKeyArray, labels: Labels, users: int, samples: int) -> Indices:
        rng, labels = _start(key, labels, users, samples, replace)
        chosen = rng.choice(len(labels), (users, samples), replace)
        return list(chosen)

    return partition


def label_skew(share: float, replace: bool = False) -> Partition:
    """A `share` of a user's samples is of a label of its own, the rest a shuffled draw of all.

    Args:
        share: 0 … 1; the paper's imbalanced data are `label_skew(0.2)`.
        replace: whether samples are drawn with replacement.

    User i's own label is the i-th, beginning anew after the last.
    """
    if not _is_number(share) or not 0 <= share <= 1:
        raise InputError(f"share must lie in 0 … 1, got {_validate.shown(share)}")
    _validate.chosen("replace", replace, (False, True))

    def partition(key: PRNGKeyArray, labels: Labels, users: int, samples: int) -> Indices:
        rng, labels = _start(key, labels, users, samples, replace)
        pools = _Pools(rng, labels, replace)
        size = round(share * samples)
        own = [pools.take(user % len(pools), size) for user in range(users)]
        rest = pools.take_any(users * (samples - size)).reshape(users, -1)
        return [rng.permutation(np.concatenate(each)) for each in zip(own, rest, strict=True)]

    return partition


def dirichlet(alpha: float, replace: bool = False) -> Partition:
    """A user's labels are drawn in proportions ~ Dirichlet(alpha, …, alpha) of its own.

    Args:
        alpha: above 0; small is strong skew.
        replace: whether samples are drawn with replacement.

    Where a label runs out, the user's other labels fill its place in their proportions.
    """
    _check_concentration(alpha)
    _validate.chosen("replace", replace, (False, True))

    def partition(key: PRNGKeyArray, labels: Labels, users: int, samples: int) -> Indices:
        rng, labels = _start(key, labels, users, samples, replace)
        pools = _Pools(rng, labels, replace)
        # By way of logarithms: for a small alpha all gamma variates of a user may be 0.
        log_gamma = np.log(rng.gamma(alpha + 1.0, size=(users, len(pools))))
        log_gamma += np.log(rng.random((users, len(pools)))) / alpha
        proportions = np.exp(log_gamma - log_gamma.max(1, keepdims=True))
        return [rng.permutation(pools.take_in_proportion(p, samples)) for p in proportions]

    return partition


def shards(per_user: int) -> Partition:
    """Samples sorted by label and cut into equal shards, which are dealt out.

    Args:
        per_user: how many shards each user is dealt.
    """
    _validate.whole("per_user", per_user, 1)

    def partition(key: PRNGKeyArray, labels: Labels, users: int, samples: int) -> Indices:
        rng, labels = _start(key, labels, users, samples)
        if samples % per_user:
            raise InputError(
                f"samples must be a multiple of per_user = {per_user} shards, got {samples}"
            )
        chosen = rng.permutation(len(labels))[: users * samples]
        ordered = chosen[np.argsort(labels[chosen], kind="stable")]
        dealt = rng.permutation(ordered.reshape(users * per_user, -1)).reshape(users, samples)
        return [rng.permutation(held) for held in dealt]

    return partition


def quantity_skew(alpha: float, at_least: int = 1) -> Partition:
    """Users of unequal size D_i, in proportions ~ Dirichlet(alpha, …, alpha); labels shuffled.

    Args:
        alpha: above 0; small is strong skew.
        at_least: how many samples each user holds at least; all together hold users · samples.
    """
    _check_concentration(alpha)
    _validate.whole("at_least", at_least, 1)

    def partition(key: PRNGKeyArray, labels: Labels, users: int, samples: int) -> Indices:
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
    """The samples that are left of every label, shuffled."""

    def __init__(self, rng: np.random.Generator, labels: Labels, replace: bool) -> None:
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
        """Of all labels alike; the last to be taken."""
        return self.rng.choice(np.concatenate(self.pools), count, self.replace)

    def take_in_proportion(self, proportions: Float[np.ndarray, "label"], count: int) -> np.ndarray:
        taken = np.empty(0, int)
        while len(taken) < count:
            left = np.array([len(pool) for pool in self.pools])
            weights = np.where(left > 0, proportions, 0.0)
            weights = weights if weights.sum() > 0 else left  # none left of the labels it wants
            wanted = self.rng.multinomial(count - len(taken), weights / weights.sum())
            counts = wanted if self.replace else np.minimum(wanted, left)
            parts = [self.take(label, n) for label, n in enumerate(counts)]
            taken = np.concatenate([taken, *parts])
        return taken


def dealt(partition: Any, key: Any, labels: Labels, users: Any, samples: Any) -> Indices:
    """What a partition gives, anyone's own included, checked."""
    shipped = iid, label_skew, dirichlet, shards, quantity_skew
    if not callable(partition) or partition in shipped:
        raise InputError(
            f"partition must be one such as jo.tasks.iid(), got {_validate.shown(partition)}"
        )
    _start(key, labels, users, samples, replace=True)
    try:
        given = [np.asarray(indices) for indices in partition(key, labels, users, samples)]
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            "partition must give a list of indices of (key, labels, users, samples): "
            f"{_validate.first_line(error)}"
        ) from error
    if len(given) != users:
        raise InputError(f"partition must give indices for {users} users, got {len(given)}")
    for user, held in enumerate(given):
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
    return given


def _start(
    key: PRNGKeyArray, labels: Labels, users: int, samples: int, replace: bool = False
) -> tuple[np.random.Generator, Labels]:
    """A generator for `key`, and the labels, after a look at the sizes."""
    labels = _validate.real("labels", labels)
    if labels.ndim != 1 or not labels.size:
        raise InputError(f"labels must have shape [sample ≥ 1], got {list(labels.shape)}")
    users, samples = _validate.whole("users", users, 1), _validate.whole("samples", samples, 1)
    if users * samples > len(labels) and not replace:
        raise InputError(
            f"users · samples must be ≤ {len(labels)}, the samples there are, got {users} · "
            f"{samples} = {users * samples}"
        )
    batching.refuse_memory(
        "users · samples", f"the indices of {users} · {samples}", 8 * users * samples
    )
    words = jax.random.key_data(_validate.key("key", key))
    return np.random.default_rng(np.asarray(words)), labels


def _check_concentration(alpha: Any) -> None:
    if not _is_number(alpha) or not _LEAST <= alpha < np.inf:
        small = _is_number(alpha) and 0 < alpha < _LEAST
        least = f"≥ {_LEAST:g}" if small else "> 0"
        raise InputError(f"alpha must be a finite number {least}, got {_validate.shown(alpha)}")


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
