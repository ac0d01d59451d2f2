"""What do noise-free FedAvg and centralised training reach on MNIST with softmax regression?

    python benchmarks/paper/mnist_noise_free.py [--data-dir DIR] [--trials 20]

FedAvg has fig4's settings (10 users of 600 images, K = 5, batch 20, η = 0.01, 100 rounds).
Centralised is one user with all training images: ten epochs of SGD, batch 100, η = 0.3.
"""

import argparse

import jax

import jaxota as jo
from jaxota import stats


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--trials", type=int, default=20)
    options = parser.parse_args()

    def accuracy(task, algorithm, rounds, trials):
        history = jo.simulate(
            jax.random.key(1), algorithm, jo.Channel(), task, rounds, trials, every=rounds
        )
        reached = stats.interval(history.accuracy[:, -1])
        return f"{reached.mean:.4f} ± {reached.half_width:.4f} ({trials} trials)"

    def mnist(users, samples):
        return jo.tasks.mnist(jax.random.key(0), users, samples, data_dir=options.data_dir)

    fedavg = accuracy(mnist(10, 600), jo.fedavg(1e-2, 5, 20), 100, options.trials)
    print(f"FedAvg, noise-free, fig4's settings: test accuracy {fedavg}", flush=True)
    central = accuracy(mnist(1, 60_000), jo.fedavg(0.3, 600, 100), 10, 3)
    print(f"centralised, 60,000 images, 10 epochs: test accuracy {central}")


if __name__ == "__main__":
    main()
