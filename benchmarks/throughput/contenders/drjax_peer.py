"""DrJAX: rounds of broadcast, map and mean in one compiled scan, vmapped over trials.

A Python loop over compiled rounds of one trial, as DrJAX's examples have it, is slower by half.
"""

import functools

import contest
import drjax
import jax
import jax.numpy as jnp
import numpy as np


def prepare(work: contest.Work) -> contest.Run:
    features = jnp.asarray(work.features, "float32")
    targets = jnp.asarray(work.targets, "float32")
    users, samples = targets.shape

    def loss(model, x, y):
        return jnp.mean((x @ model - y) ** 2)

    def train(model, x, y, key, full):
        def step(model, key):
            chosen = jax.random.randint(key, (work.batch,), 0, samples)
            batch = (x, y) if full else (x[chosen], y[chosen])
            return model - work.step_size * jax.grad(loss)(model, *batch), None

        return jax.lax.scan(step, model, jax.random.split(key, work.steps))[0]

    def fedavg(rounds, full):
        @drjax.program(clients=users)
        def one_round(model, features, targets, key):
            local = drjax.map_fn(
                lambda *arguments: train(*arguments, full),
                (drjax.broadcast(model), features, targets, jax.random.split(key, users)),
            )
            return drjax.reduce_mean(local)

        def one_trial(model, key, features, targets):
            def go(model, key):
                return one_round(model, features, targets, key), None

            return jax.lax.scan(go, model, jax.random.split(key, rounds))[0]

        return jax.jit(jax.vmap(one_trial, (0, 0, None, None)))

    compiled = functools.cache(fedavg)

    def run(models, rounds, full):
        models, keys = (
            jnp.asarray(models, "float32"),
            jax.random.split(jax.random.key(0), len(models)),
        )
        return np.asarray(compiled(rounds, full)(models, keys, features, targets))

    return run


if __name__ == "__main__":
    about = {"drjax": drjax.__version__, "jax": jax.__version__, "threads": "XLA's default"}
    about |= {"floats": "float32", "matmul precision": "XLA's default"}
    contest.take_part(prepare, about, trials=100)
