"""Plain C, a thread for each core, built with the system's compiler: what the machine can do.

Sums may be reordered (`-ffast-math`), as XLA and NumPy reorder them; the models are as close to the
float64 loop. Minibatch indices come from the same hash as jaxota's.
"""

import ctypes
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import contest
import numpy as np

WIDTH = 16
FLAGS = "-O3", "-march=native", "-ffast-math"


def build() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "plain.so"
        source = Path(__file__).with_name("plain.c")
        subprocess.run(["cc", *FLAGS, "-shared", "-fPIC", source, "-o", library, "-lm"], check=True)
        return ctypes.CDLL(str(library))


def prepare(work: contest.Work) -> contest.Run:
    users, samples, dim = work.features.shape
    table = np.zeros((users * samples, WIDTH), np.float32)
    table[:, :dim] = work.features.reshape(-1, dim)
    table[:, dim] = work.targets.reshape(-1)
    program, cores = build().run, len(os.sched_getaffinity(0))
    rng = np.random.default_rng(0)

    def pointer(array: np.ndarray) -> ctypes.c_void_p:
        return array.ctypes.data_as(ctypes.c_void_p)

    def run(models: np.ndarray, rounds: int, full: bool) -> np.ndarray:
        trials = len(models)
        held = np.zeros((trials, WIDTH), np.float32)
        held[:, :dim], held[:, dim] = models, -1.0
        words = rng.integers(0, 2**32, (trials, rounds, 2), np.uint32)
        ends = np.linspace(0, trials, cores + 1).astype(int).tolist()
        numbers = users, samples, dim, work.steps, work.batch, rounds
        rates = ctypes.c_float(work.step_size), ctypes.c_float(work.ratio)

        def part(core: int) -> None:
            own = pointer(held), pointer(table), pointer(words), *ends[core : core + 2]
            program(*own, *numbers, *rates, int(full))

        with ThreadPoolExecutor(cores) as pool:
            list(pool.map(part, range(cores)))
        return held[:, :dim]

    return run


if __name__ == "__main__":
    told = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True).stdout
    contest.take_part(prepare, {"version": told.splitlines()[0], "flags": " ".join(FLAGS)})
