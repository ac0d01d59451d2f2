"""What does a round cost where 10 of N users take part, as N grows?

    python benchmarks/throughput/cohorts.py [--short] [--out DIR]

A small network on data of each user's own, stored or generated, over a noisy channel. Runs of two
lengths take turns; their difference is the cost of rounds without what a run does once. Beside them
run all of 100 users.
"""

import bench
import jax
import jax.numpy as jnp
import numpy as np

import jaxota as jo
from jaxota.stages.channel import Channel

DRAWN, SAMPLES, INPUTS, HIDDEN = 10, 20, 32, 64
SHORT, LONG = 2, 32  # rounds


def init(key):
    first, second = jax.random.split(key)
    return {
        "first": 0.1 * jax.random.normal(first, (INPUTS, HIDDEN)),
        "second": 0.1 * jax.random.normal(second, (HIDDEN, 10)),
    }


def loss(parameters, batch):
    logits = jnp.tanh(batch["x"] @ parameters["first"]) @ parameters["second"]
    chosen = batch["y"][:, None] == jnp.arange(10)[None]
    return -jnp.sum(jax.nn.log_softmax(logits) * chosen, 1)


def samples(key, user):
    x = jax.random.normal(key, (SAMPLES, INPUTS))
    return {"x": x, "y": jnp.argmax(x[:, :10] + 0.1 * (user % 10), 1)}


def stored(users):
    """The same kind of data, drawn in NumPy and kept."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((users, SAMPLES, INPUTS), np.float32)
    return jo.tasks.empirical(init, loss, {"x": x, "y": x[:, :, :10].argmax(2)})


def generated(users):
    return jo.tasks.generated(0, users, init, loss, samples, scored=100)


def runs(task, all_users=False):
    """Runs of both lengths, scored once; the rule that sizes cohorts is switched off for all."""
    algorithm = jo.noisy_fedavg(1e-2, 10, 20, precode=jo.Constant(1.0))
    channel, rule = jo.Channel(participants=DRAWN), Channel.cohort_size

    def run(rounds):
        Channel.cohort_size = (lambda *_: None) if all_users else rule
        history = jo.simulate(1, algorithm, channel, task, rounds, 1, every=rounds)
        Channel.cohort_size = rule
        jax.block_until_ready(history.model)

    return {"short": lambda: run(SHORT), "long": lambda: run(LONG)}


def main():
    question = __doc__.splitlines()[0]
    given = bench.options(question)
    sizes = {
        "stored": (100, 1_000, 10_000, 100_000),
        "generated": (100, 100_000, 1_000_000),
        "all compute": (100,),
    }
    kinds = {"stored": stored, "generated": generated, "all compute": stored}
    pairs = {
        (kind, users, length): run
        for kind, counts in sizes.items()
        for users in counts
        for length, run in runs(kinds[kind](users), kind == "all compute").items()
    }
    seconds = bench.medians(pairs, 3 if given.short else 9)
    cost = {
        kind: {
            n: (seconds[kind, n, "long"] - seconds[kind, n, "short"]) / (LONG - SHORT)
            for n in counts
        }
        for kind, counts in sizes.items()
    }
    rows = [
        (kind, f"{n:,}", f"{1e3 * each:.2f}", f"{each / cost['stored'][100]:.2f}")
        for kind, costs in cost.items()
        for n, each in costs.items()
    ]
    facts = bench.machine() | bench.accelerator()
    bench.said(question, facts, ("data", "N", "ms a round", "times 100 stored"), rows)

    def curves(axes):
        for kind, costs in cost.items():
            axes.loglog(list(costs), [1e3 * each for each in costs.values()], "o-", label=kind)
        axes.set_xlabel(f"users N, of whom {DRAWN} take part in a round")
        axes.set_ylabel("ms per round")
        axes.set_ylim(bottom=0.5 * min(1e3 * min(costs.values()) for costs in cost.values()))
        axes.legend(fontsize=7)

    bench.kept(given.out, "cohorts", {"machine": facts, **cost}, curves)


if __name__ == "__main__":
    main()
