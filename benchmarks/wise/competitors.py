"""The algorithms that WISE is compared with, in groups; all keep the peak power P but one group."""

import jax.numpy as jnp
import optax
from wise_map import LOCAL

import jaxota as jo


@jo.part
class LargeBatch:
    """Minibatch SGD: one gradient of K·batch samples at the broadcast model, times scale·K·η."""

    step_size: float = jo.traced(above=0.0)
    steps: int = jo.static(at_least=1)
    batch: int | None = jo.static(default=None, at_least=1)
    scale: float = jo.traced(default=1.0, above=0.0)

    controlled = plain = False
    start, remember = jo.SGD.start, jo.SGD.remember

    @property
    def one_step(self):
        samples = None if self.batch is None else self.steps * self.batch
        return jo.SGD(self.scale * self.steps * self.step_size, 1, samples)

    @property
    def draws(self):
        return self.one_step.draws

    @property
    def reach(self):
        return self.one_step.reach

    def __call__(self, k_batch, k_control, problem, state):
        return self.one_step(k_batch, k_control, problem, state)


@jo.part
class TailAverage:
    """The estimate becomes the next model; the output is the mean of all models from a round on."""

    first: float = jo.traced(at_least=1.0)

    answer = jo.ReplaceModel.answer

    def start(self, model):
        return {"round": jnp.float32(0.0), "mean": model}

    def __call__(self, seen, state):
        r, mean = state.server["round"] + 1.0, state.server["mean"]
        count = jnp.maximum(r - self.first + 1.0, 1.0)
        return seen.estimate, {"round": r, "mean": mean + (seen.estimate - mean) / count}

    def output(self, model, memory):
        return memory["mean"]


def baselines() -> dict[str, jo.Algorithm]:
    """Return the paper's algorithms, at the same peak power as WISE."""
    return {
        "noisy FedAvg": jo.noisy_fedavg(**LOCAL),
        "COTAF": jo.cotaf(**LOCAL, precode=jo.Online()),
        "BAAF": jo.baaf(**LOCAL, precode=jo.Online()),
        "COBAAF": jo.cobaaf(**LOCAL, precode=jo.Online()),
    }


def rivals(rounds: int) -> dict[str, dict[str, jo.Algorithm]]:
    """Return groups of algorithms that have what WISE has, or that are tuned at the server."""
    precoded = {name: each for name, each in baselines().items() if name != "noisy FedAvg"}
    coded = {f"{k}, coded means": v.replace(compress=jo.Centred()) for k, v in precoded.items()}
    power = {f"{k}, mean power P": v.replace(precode=jo.MeanPower()) for k, v in precoded.items()}
    plain = coded["COTAF, coded means"]
    cosine = jo.Optimizer(optax.sgd(optax.cosine_decay_schedule(1.0, rounds)))
    tail = TailAverage(rounds // 2 + 1.0)
    coded |= {
        "COTAF, coded means, cosine": plain.replace(server=cosine),
        "COTAF, coded means, tail average": plain.replace(server=tail),
    }
    minibatch = {}
    for scale in (1.0, 0.5):
        large = plain.replace(local=LargeBatch(**LOCAL, scale=scale))
        name = f"minibatch SGD × {scale:g}, coded means"
        minibatch |= {name: large, f"{name}, cosine": large.replace(server=cosine)}
    optimisers = {
        "FedAvgM": optax.sgd(0.1, momentum=0.9),
        "FedYogi": optax.yogi(0.1, b2=0.99, eps=1e-3),
        "FedAdagrad": optax.adagrad(0.3, eps=1e-3),
        "cosine": optax.sgd(optax.cosine_decay_schedule(1.0, rounds)),
    }
    for rate in (0.03, 0.1, 0.3, 1.0):
        decayed = optax.cosine_decay_schedule(rate, rounds)
        optimisers |= {
            f"FedAdam {rate:g}": optax.adam(rate, b2=0.99, eps=1e-3),
            f"FedAdam {rate:g}, cosine": optax.adam(decayed, b2=0.99),
        }
    server = {
        f"COTAF, {name}": jo.cotaf(**LOCAL, precode=jo.Online(), server=optimiser)
        for name, optimiser in optimisers.items()
    }
    groups = {"coded means": coded, "minibatch SGD": minibatch, "mean power P": power}
    return groups | {"server optimisers": server}
