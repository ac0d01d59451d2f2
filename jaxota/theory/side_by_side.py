"""Tasks of the paper's studies, on several data draws at once."""

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxota.algorithms import Algorithm
from jaxota.stages.channel import Channel
from jaxota.tasks.least_squares import Regression
from jaxota.theory.comparison import Comparison as Beside
from jaxota.theory.comparison import compare
from jaxota.theory.statements import Bound

CALIBRATION_TRIALS = 20


def beside(
    theorem: Callable[..., Bound],
    key: Any,
    algorithm: Algorithm,
    channel: Channel,
    task: Regression,
    rounds: Any,
    trials: int,
    step_size: Any = None,
    calibration_trials: int = 20,
) -> Beside:
    """Call `compare` for each data draw, and stack what it returns [draw, ...]."""
    run = key, algorithm, channel
    compared = [
        compare(
            *(*run, jax.tree.map(operator.itemgetter(draw), task), rounds, trials),
            theorem=theorem,
            step_size=None if step_size is None else step_size[draw],
            calibration_trials=calibration_trials,
        )
        for draw in range(len(task.counts))
    ]
    return jax.tree.map(lambda *x: np.stack(x), *compared)


def well_conditioned(
    seed: int,
    draws: int,
    users: int = 8,
    samples: int = 25,
    dim: int = 4,
    condition: float = 1.5,
    spread: float = 0.3,
) -> Regression:
    """Least squares whose Hessians have eigenvalues from 2 to 2·condition: arrays [draw, …].

    Args:
        seed, draws: of the data, and how many of them.
        users, samples, dim: N, D and d of each.
        condition, spread: of the Hessians, and of users' true weights.

    Gaussian features are whitened user by user, then scaled coordinate by coordinate. Users' true
    weights are N(1, spread²), targets carry noise of variance 0.01. At fig1's condition, Theorem 3
    would need R of several thousand.
    """
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((draws, users, samples, dim))
    left, _, right = np.linalg.svd(features, full_matrices=False)
    scale = condition ** (rng.uniform(size=(draws, users, 1, dim)) / 2)
    features = np.sqrt(samples) * (left @ right) * scale
    weights = 1.0 + spread * rng.standard_normal((draws, users, dim, 1))
    targets = (features @ weights)[..., 0] + 0.1 * rng.standard_normal((draws, users, samples))
    counts = np.full((draws, users), samples, np.int32)
    return Regression(*map(jnp.asarray, (np.float32(features), np.float32(targets), counts)))


def first_of(task: Regression) -> Regression:
    """The first data draw of a task with a leading axis [draw]."""
    return jax.tree.map(lambda x: x[0], task)
