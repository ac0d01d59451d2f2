"""At which SNR and initial scale do the paper's claims on MNIST hold?

    python benchmarks/paper/mnist_claims.py [--data-dir DIR] [--trials 5] [--calibration 30]

Claim 6, balanced: BAAF above COTAF above noisy FedAvg, close to FedAvg. Claim 7, imbalanced: COBAAF
above COTAF, by more than BAAF is in the balanced case, and close to SCAFFOLD. Accuracies after 100
rounds, differences trial by trial with 95 % intervals; fig4's and fig5's settings otherwise.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import jaxota as jo
from jaxota import stats

SNR_DB = jnp.arange(-10.0, 51.0, 10.0)  # per vector
SCALES = (0.0, 0.1, 1.0)
LOCAL = {"step_size": 1e-2, "steps": 5, "batch": 20}
ROUNDS = 100


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--calibration", type=int, default=30, help="calibration trials")
    options = parser.parse_args()
    key = jax.random.key(1)
    partitions = {"balanced": jo.tasks.iid(), "imbalanced": jo.tasks.label_skew(0.2)}
    tasks = {
        name: jo.tasks.mnist(jax.random.key(0), partition=partition, data_dir=options.data_dir)
        for name, partition in partitions.items()
    }
    compared = {
        "balanced": {
            "noisy FedAvg": jo.noisy_fedavg(**LOCAL),
            "COTAF": jo.cotaf(**LOCAL),
            "BAAF": jo.baaf(**LOCAL),
            "FedAvg": jo.fedavg(**LOCAL),
        },
        "imbalanced": {
            "COTAF": jo.cotaf(**LOCAL),
            "COBAAF": jo.cobaaf(**LOCAL),
            "SCAFFOLD": jo.scaffold(**LOCAL),
        },
    }

    def finals(task, algorithm, plan):
        history = jo.sweep(
            key,
            algorithm,
            jo.Channel(SNR_DB),
            task,
            ROUNDS,
            options.trials,
            plan=plan,
            every=ROUNDS,
        )
        return np.asarray(history.accuracy)[..., -1]  # [setting, trial]

    print(f"final accuracy, mean of {options.trials} trials; differences ± 95 % interval")
    for scale in SCALES:
        found = {}
        for name, algorithms in compared.items():
            task, plans = tasks[name].replace(init_scale=scale), {}
            for label, algorithm in algorithms.items():
                rule = type(algorithm.local)
                if algorithm.needs and rule not in plans:
                    plans[rule] = jo.calibrate(key, algorithm, task, ROUNDS, options.calibration)
                found[name, label] = finals(task, algorithm, plans.get(rule))
        print(f"\ninitial scale {scale:g}")
        for n, snr in enumerate(SNR_DB):
            print(f"  SNR {snr:3.0f} dB per vector", flush=True)
            for name in compared:
                means = ", ".join(
                    f"{label} {values[n].mean():.3f}"
                    for (group, label), values in found.items()
                    if group == name
                )
                print(f"    {name:10} {means}")
            for name, better, worse in (
                ("balanced", "BAAF", "COTAF"),
                ("balanced", "COTAF", "noisy FedAvg"),
                ("balanced", "BAAF", "FedAvg"),
                ("imbalanced", "COBAAF", "COTAF"),
                ("imbalanced", "COBAAF", "SCAFFOLD"),
            ):
                gap = stats.paired(found[name, better][n], found[name, worse][n])
                text = f"{gap.mean:+.4f} ± {gap.half_width:.4f}"
                if gap.diverged:  # no mean of the others stands for them
                    text = f"{gap.diverged} of {gap.trials} trials diverged"
                print(f"    {name:10} {better} − {worse}: {text}", flush=True)


if __name__ == "__main__":
    main()
