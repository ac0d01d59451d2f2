"""FedJAX: its `algorithms.fed_avg`, whose clients' steps are compiled one by one.

FedJAX 0.0.17 asks for `jax.tree_map`, which later JAX calls `jax.tree.map`: it is put back, so that
the JAX is a recent one.
"""

import importlib.metadata

import contest
import fedjax
import jax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms import fed_avg

jax.tree_map = jax.tree.map


def prepare(work: contest.Work) -> contest.Run:
    users, samples = work.targets.shape
    features, targets = work.features.astype("float32"), work.targets.astype("float32")
    clients = [
        (str(i).encode(), fedjax.ClientDataset({"x": features[i], "y": targets[i]}))
        for i in range(users)
    ]

    def loss(model, batch, key):
        return jnp.mean((batch["x"] @ model - batch["y"]) ** 2)

    def algorithm(batch):
        return fed_avg.federated_averaging(
            jax.grad(loss),
            fedjax.optimizers.sgd(work.step_size),
            fedjax.optimizers.sgd(1.0),
            fedjax.ShuffleRepeatBatchHParams(batch, num_epochs=None, num_steps=work.steps),
        )

    algorithms = {False: algorithm(work.batch), True: algorithm(samples)}

    def run(models, rounds, full):
        results, key = [], jax.random.PRNGKey(0)
        for model in models:
            state = algorithms[full].init(jnp.asarray(model, "float32"))
            for _ in range(rounds):
                key, *keys = jax.random.split(key, users + 1)
                chosen = [(*client, key) for client, key in zip(clients, keys, strict=True)]
                state, _ = algorithms[full].apply(state, chosen)
            results.append(np.asarray(state.params))
        return np.stack(results)

    return run


if __name__ == "__main__":
    about = {name: importlib.metadata.version(name) for name in ("fedjax", "jax")}
    about |= {"threads": "XLA's default", "floats": "float32", "matmul precision": "XLA's default"}
    about["minibatches"] = "without replacement within a pass over the samples"
    contest.take_part(prepare, about, trials=1, rounds=12)
