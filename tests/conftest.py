"""Tests run stricter than users do: ranks never promote silently, warnings are errors."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # XLA is noisy about programs from its cache
# Compiling is most of what the tests do, and their programs are too small to gain from LLVM's best.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

from pathlib import Path

os.environ.setdefault(
    "JAXOTA_CACHE", str(Path(__file__).parent.parent / ".pytest_cache" / "jaxota")
)

import jax
import numpy as np
import pytest
import reference

import jaxota as jo

jax.config.update("jax_numpy_rank_promotion", "raise")
_CACHE = Path(__file__).parent.parent / ".pytest_cache" / "jax"
_CACHE /= os.environ.get("PYTEST_XDIST_WORKER", "alone")  # no two processes write to one folder
jax.config.update("jax_compilation_cache_dir", str(_CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

USERS, SAMPLES, DIM = 4, 15, 6


@pytest.fixture(scope="session")
def arrays():
    """Features [user, sample, d] and targets [user, sample] of a small heterogeneous problem."""
    return reference.synthetic(np.random.default_rng(0), USERS, SAMPLES, DIM, 0.1, 1.0)


@pytest.fixture(scope="session")
def task(arrays):
    return jo.tasks.regression(*arrays)


@pytest.fixture(scope="session")
def start():
    """Models to start from [trial, d], the same for both sides of a comparison."""
    return np.random.default_rng(1).standard_normal((300, DIM)).astype(np.float32)
