"""How many user-steps per second does fig1's workload reach here, beside NumPy?

    python benchmarks/throughput.py [--trials 100] [--repeats 7]

A user-step is one SGD step of one user in one trial: minibatch drawn, gathered, applied. The
workload is COTAF with the online precoder (no calibration): 20 users, 10 steps, batch 10, d = 10,
60 rounds. All contenders run in this process, on the same data; compiling is timed apart.
"""

import argparse
import os
import platform
import statistics
import time

import jax
import numpy as np
import psutil

import jaxota as jo

USERS, SAMPLES, DIM, STEPS, BATCH, ROUNDS, STEP_SIZE = 20, 100, 10, 10, 10, 60, 1e-2


def numpy_batched(features, targets, trials, rounds, rng):
    """The same experiment by hand: all users and trials in one array [trial, user, …]."""
    models = rng.standard_normal((trials, DIM), np.float32)
    table = np.concatenate([features, targets[..., None]], -1).reshape(-1, DIM + 1)
    first = (np.arange(USERS) * SAMPLES)[None, :, None]
    for _ in range(rounds):
        local = np.repeat(models[:, None], USERS, 1)
        for _ in range(STEPS):
            rows = table[first + rng.integers(0, SAMPLES, (trials, USERS, BATCH))]
            x, y = rows[..., :DIM], rows[..., DIM]
            residual = np.einsum("tubd,tud->tub", x, local) - y
            local = local - np.float32(2 * STEP_SIZE / BATCH) * np.einsum(
                "tub,tubd->tud", residual, x
            )
        update = local - models[:, None]
        energy = (update**2).sum(-1).max(-1)
        noise = np.sqrt(0.1 * energy / USERS**2)[:, None] * rng.standard_normal(models.shape)
        models = (models + update.mean(1) + noise).astype(np.float32)
    return models


def numpy_loop(features, targets, trials, rounds, rng):
    """The same as it is usually written: one trial, one user, one step at a time."""
    models = rng.standard_normal((trials, DIM))
    for t in range(trials):
        for _ in range(rounds):
            updates = np.zeros((USERS, DIM))
            for i in range(USERS):
                local = models[t].copy()
                for _ in range(STEPS):
                    chosen = rng.integers(0, SAMPLES, BATCH)
                    x, y = features[i, chosen], targets[i, chosen]
                    local -= STEP_SIZE * 2 / BATCH * x.T @ (x @ local - y)
                updates[i] = local - models[t]
            energy = (updates**2).sum(-1).max()
            noise = np.sqrt(0.1 * energy / USERS**2) * rng.standard_normal(DIM)
            models[t] += updates.mean(0) + noise
    return models


def median_seconds(function, repeats):
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    trials = options.trials

    task = jo.tasks.synthetic_regression(jax.random.key(0), USERS, SAMPLES, DIM)
    problem = task.problem(0)
    arrays = np.asarray(problem.features), np.asarray(problem.targets)
    task = jo.tasks.regression(*arrays)
    algorithm = jo.cotaf(STEP_SIZE, STEPS, BATCH, precode=jo.Online())

    def jaxota():
        channel = jo.Channel(snr_db=10.0)
        history = jo.simulate(jax.random.key(1), algorithm, channel, task, ROUNDS, trials)
        return jax.block_until_ready(history)

    first = median_seconds(jaxota, 1)
    jaxota_run = median_seconds(jaxota, options.repeats)
    rng = np.random.default_rng(0)
    batched = median_seconds(lambda: numpy_batched(*arrays, trials, ROUNDS, rng), options.repeats)
    loop = median_seconds(lambda: numpy_loop(*arrays, 1, 6, rng), options.repeats)

    steps = trials * USERS * STEPS * ROUNDS
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
          f"jax {jax.__version__} on {jax.devices()[0].platform}, {trials} trials, "
          f"median of {options.repeats}")  # fmt: skip
    memory = psutil.Process().memory_info().rss / 2**20
    print(f"{memory:.0f} MiB in use")
    print(f"{'jaxota, first call':28}{first:10.2f} s, compiling included")
    rates = {
        "jaxota": steps / jaxota_run,
        "NumPy, batched by hand": steps / batched,
        "NumPy, a loop": USERS * STEPS * 6 / loop,
    }
    for name, rate in rates.items():
        print(f"{name:28}{rate:10.2e} user-steps/s{rate / rates['NumPy, batched by hand']:10.2f} ×")


if __name__ == "__main__":
    main()
