"""How long, and in how much memory, does a sweep of a million trial-curves take, kept as means?

    python benchmarks/throughput/million.py [TRIALS]

10 SNRs × 100,000 trials × 20 rounds of COTAF, d = 10, by way of a store. The mean of one setting is
compared with that of all its trials at once, from `simulate`.
"""

import resource
import sys
import tempfile
import time

import jax
import numpy as np

import jaxota as jo
from jaxota._core import devices as _devices


def main(trials: int) -> None:
    _devices.virtual()
    task = jo.tasks.synthetic_regression(jax.random.key(0), users=10, samples=50, dim=10)
    algorithm, key = jo.cotaf(1e-2, 5, 10), jax.random.key(1)
    snrs = [float(snr) for snr in range(-10, 40, 5)]
    study = jo.Study({"COTAF": algorithm}, jo.Channel(), task, 20, trials, key=key, keep="mean")
    study = study.replace(over=jo.grid(snr_db=snrs))
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        data = study.run(f"{folder}/store")
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        chunks = data.attrs["chunks"]
    size = f"{len(snrs)} settings × {trials:,} trials × 20 rounds"
    print(f"{size} in {chunks} chunks: {seconds:.0f} s")
    print(f"peak resident memory {peak:.2f} GB, JAX and all")
    assert (data.trials == trials).all()
    channel = jo.Channel(snr_db=snrs[4])
    direct = jo.simulate(key, algorithm, channel, task, 20, trials).gap
    direct = np.asarray(direct, np.float64)
    merged = data.isel(algorithm=0, snr_db=4)
    mean = np.abs(merged.gap_mean.values / direct.mean(0) - 1).max()
    var = np.abs(merged.gap_var.values / direct.var(0, ddof=1) - 1).max()
    print(f"against all trials of one setting at once: mean within {mean:.1e}, variance {var:.1e}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
