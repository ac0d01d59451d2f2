"""What do weights by samples and 10 active users of 100 change, error-free and over the air?

    python benchmarks/paper/weighted_users.py [--rounds 50] [--trials 5]

Li, Huang, Yang, Wang and Zhang, "On the convergence of FedAvg on non-IID data", ICLR 2020: logistic
regression on Synthetic(α, β), 100 users of unequal size whose losses count by their samples, 10 of
them active in a round, a few local steps on minibatches of 64, and steps that decay as η₀/(1 + r).
Data as in Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, "Federated optimization in heterogeneous
networks", MLSys 2020.

What differs from the papers: the average is over the air, too; it is of updates and not of models
(an average of the models of 10 users weighted for 100 has weights whose sum is 1 in the mean only);
no weight decay; users hold at most 1,000 samples, a fifth more are the test data; gains meet the
power budget in each round, so that nothing is calibrated.
"""

import argparse

import numpy as np

import jaxota as jo

USERS, ACTIVE, FEATURES, CLASSES = 100, 10, 60, 10
LOCAL = {"steps": 5, "batch": 64}
FIRST_STEP, SNR_DB = 0.1, 20.0  # SNR per vector
MOST = 1000  # samples of a user


def step_size(r):
    """η of the round after r others."""
    return FIRST_STEP / (1.0 + r)


def synthetic(seed, alpha=1.0, beta=1.0, users=USERS, most=MOST):
    """Make Synthetic(α, β), its users' sizes log-normal, as an unweighted task."""
    rng = np.random.default_rng(seed)
    sizes = np.minimum(rng.lognormal(4.0, 2.0, users).astype(int) + 50, most)
    deviation = np.arange(1, FEATURES + 1) ** -0.6  # variances j^−1.2
    held, tested = ([], []), ([], [])
    for size in sizes:
        centre, shift = np.sqrt([alpha, beta]) * rng.standard_normal(2)
        weights = centre + rng.standard_normal((FEATURES, CLASSES))
        bias = centre + rng.standard_normal(CLASSES)
        mean = shift + rng.standard_normal(FEATURES)
        count = size + size // 5
        x = (mean + deviation * rng.standard_normal((count, FEATURES))).astype("float32")
        y = np.argmax(x @ weights + bias, 1)
        for pair, rows in ((held, slice(size)), (tested, slice(size, None))):
            pair[0].append(x[rows])
            pair[1].append(y[rows])
    return jo.tasks.classification(
        jo.tasks.SoftmaxRegression(CLASSES), held, tuple(np.concatenate(each) for each in tested)
    )


def weighted_loss(model, models, problem):
    """The objective with weights by samples, whatever the run itself minimises."""
    return problem.replace(weights=problem.counts.astype("float32")).score(model)["loss"]


def compare(task, rounds, trials, active=ACTIVE, seed=0):
    """Run the four combinations of weights and channel, and all users error-free."""
    algorithm = jo.cotaf(step_size, **LOCAL, precode=jo.Online())
    quiet, noisy = (jo.Channel(snr, participants=active) for snr in (np.inf, SNR_DB))
    some, every = f"{active} of {task.users}", f"{task.users} of {task.users}"
    weighted = jo.tasks.weighted(task, "samples")
    cases = {
        f"weighted, {every}, error-free": (weighted, jo.Channel(np.inf)),
        f"weighted, {some}, error-free": (weighted, quiet),
        f"unweighted, {some}, error-free": (task, quiet),
        f"weighted, {some}, COTAF": (weighted, noisy),
        f"unweighted, {some}, COTAF": (task, noisy),
    }
    metrics = {"weighted_loss": weighted_loss}
    return {
        label: jo.simulate(
            seed, algorithm, channel, data, rounds, trials, every=rounds, metrics=metrics
        )
        for label, (data, channel) in cases.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--trials", type=int, default=5)
    options = parser.parse_args()
    task = synthetic(0)
    sizes = np.asarray(task.counts)
    print(f"users hold {sizes.min()} to {sizes.max()} samples; scores after {options.rounds}")
    print(f"rounds, means of {options.trials} trials, 95 % intervals")
    for label, history in compare(task, options.rounds, options.trials).items():
        loss, accuracy = (
            jo.stats.interval(history[name][:, -1]) for name in ("weighted_loss", "accuracy")
        )
        print(
            f"{label:36} weighted loss {loss.mean:.3f} ± {loss.half_width:.3f}   "
            f"accuracy {accuracy.mean:.3f} ± {accuracy.half_width:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
