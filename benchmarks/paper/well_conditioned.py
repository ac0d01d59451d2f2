"""Well-conditioned least squares, on which the theorems' conditions can be met in short runs."""

import numpy as np

import jaxota as jo


def well_conditioned(seed, draws, users=8, samples=25, dim=4, condition=1.5, spread=0.3):
    """Make a list of tasks, one per data draw, whose Hessians have eigenvalues 2 … 2·condition.

    Gaussian features are whitened user by user, then scaled coordinate by coordinate. The users'
    true weights are N(1, spread²), and targets have noise of variance 0.01. At the condition of
    fig1, Theorem 3 would need R of several thousand.
    """
    if seed < 0:
        raise jo.InputError(f"seed must be a whole number ≥ 0, got {seed}")
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((draws, users, samples, dim))
    left, _, right = np.linalg.svd(features, full_matrices=False)
    scale = condition ** (rng.uniform(size=(draws, users, 1, dim)) / 2)
    features = np.sqrt(samples) * (left @ right) * scale
    weights = 1.0 + spread * rng.standard_normal((draws, users, dim, 1))
    targets = (features @ weights)[..., 0] + 0.1 * rng.standard_normal((draws, users, samples))
    return [jo.tasks.regression(*arrays) for arrays in zip(features, targets, strict=True)]
