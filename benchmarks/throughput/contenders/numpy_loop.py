"""NumPy as it is usually written: one trial, one user, one step at a time, in float64."""

import contest
import numpy as np


def prepare(work: contest.Work) -> contest.Run:
    features, targets = work.features.astype(float), work.targets.astype(float)
    rng, (users, samples, dim) = np.random.default_rng(0), features.shape

    def run(models, rounds, full):
        models, batch = models.astype(float), samples if full else work.batch
        for t in range(len(models)):
            for _ in range(rounds):
                updates = np.zeros((users, dim))
                for i in range(users):
                    local = models[t].copy()
                    for _ in range(work.steps):
                        chosen = np.arange(samples) if full else rng.integers(0, samples, batch)
                        x, y = features[i, chosen], targets[i, chosen]
                        local -= work.step_size * 2 / batch * x.T @ (x @ local - y)
                    updates[i] = local - models[t]
                noise = 0.0
                if work.ratio:
                    energy = (updates**2).sum(-1).max()
                    noise = np.sqrt(work.ratio * energy / users**2) * rng.standard_normal(dim)
                models[t] += updates.mean(0) + noise
        return models

    return run


if __name__ == "__main__":
    about = {"numpy": np.__version__, "threads": "BLAS's default", "floats": "float64"}
    contest.take_part(prepare, about, trials=1, rounds=12)
