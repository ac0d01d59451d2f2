"""NumPy, batched by hand, in a process for each core: each takes its part of the trials."""

import multiprocessing
import os

import contest
import numpy as np
import numpy_batched

CORES = len(os.sched_getaffinity(0))


def prepare(work: contest.Work) -> contest.Run:
    pipes = []
    for seed in range(CORES):  # workers start here, which is not timed
        here, there = multiprocessing.Pipe()
        multiprocessing.Process(target=serve, args=(work, seed, there), daemon=True).start()
        pipes.append(here)

    def run(models: np.ndarray, rounds: int, full: bool) -> np.ndarray:
        parts = np.array_split(models, CORES)
        for pipe, part in zip(pipes, parts, strict=True):
            pipe.send((part, rounds, full))
        return np.concatenate([pipe.recv() for pipe in pipes])

    return run


def serve(work: contest.Work, seed: int, pipe) -> None:
    run = numpy_batched.prepare(work, seed)
    while True:
        pipe.send(run(*pipe.recv()))


if __name__ == "__main__":
    about = {"numpy": np.__version__, "threads": f"{CORES} processes", "floats": "float32"}
    contest.take_part(prepare, about)
