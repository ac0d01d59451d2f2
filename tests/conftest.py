"""Tests run stricter than users do: ranks never promote silently, warnings are errors."""

import gc
import importlib.metadata
import os
import subprocess

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # XLA is noisy about programs from its cache
# Compiling is most of what the tests do, and their programs are too small to gain from XLA's best:
# without its fusion emitters, in one piece and unoptimised, they compile three times as fast.
FLAGS = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
if importlib.metadata.version("jaxlib").startswith("0.10."):  # others may not know the flag
    FLAGS += " --xla_cpu_use_fusion_emitters=false"
os.environ.setdefault("XLA_FLAGS", FLAGS)

from pathlib import Path

# One cache of programs for all workers, and for the processes that they start: notebooks, commands.
_CACHE = Path(__file__).parent.parent / ".pytest_cache"
os.environ.setdefault("JAXOTA_CACHE", str(_CACHE / "jaxota"))
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    # Both or none: JAX reads no program of an unbounded cache once its size is bounded.
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(_CACHE / "jax")
    os.environ["JAX_COMPILATION_CACHE_MAX_SIZE"] = str(2**32)  # bounded, it is locked, too
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")  # small ones cost more

import jax
import jaxtyping
import numpy as np
import pytest

# Annotations of arrays hold, shapes and dtypes, in the modules that compute. Not in jaxota.theory,
# whose functions take NumPy and jax arrays alike, nor where tasks take users' arrays. As _core.part
# is among them, jaxtyping leaves the `__init__` of parts alone, which it seems to have wrapped
# before: fields may hold users' mistakes, for which the package has messages of its own.
COMPUTING = ["rounds", "stages", "tasks.least_squares", "tasks.empirical_risk", "tasks.models"]
COMPUTING += ["_core.part", "_core.devices", "_core.prng"]
jaxtyping.install_import_hook([f"jaxota.{name}" for name in COMPUTING], "array_types.checked")

import reference

import jaxota as jo

jax.config.update("jax_numpy_rank_promotion", "raise")
# Tracing makes many objects, and looking through all older ones for garbage is a tenth of the time.
gc.freeze()
gc.set_threshold(100_000, 20, 20)

# The files that take longest, in the order in which workers start with them.
LONGEST = ("cli", "contract", "fading", "readme", "theory", "bounds", "extend", "datasets",
           "notebooks", "docs", "labelled", "algorithms", "simulation", "twin",
           "sweeping")  # fmt: skip


def pytest_configure(config):
    config.option.loadscopereorder = False  # the order below, not that of xdist


def pytest_collection_modifyitems(items):
    """With --dist loadgroup a file stays with one worker, where its tests share programs."""
    names = [f"test_{name}" for name in LONGEST]
    items.sort(key=lambda i: names.index(i.path.stem) if i.path.stem in names else len(names))
    for item in items:
        if not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


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


@pytest.fixture
def disk(tmp_path):
    """Mounts a disk with these options: its folder, and what mounts it again otherwise."""
    folder = tmp_path / "disk"

    def mount(options):
        words = "mount", "-t", "tmpfs", "-o", options, "tmpfs", folder
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")

    def new(options):
        folder.mkdir()
        mount(options)
        return folder, lambda options: mount(f"remount,{options}")

    yield new
    if folder.is_mount():
        subprocess.run(["umount", folder], check=True)
