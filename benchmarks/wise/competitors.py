"""The algorithms that WISE is compared with, in groups.

All keep WISE's peak power P, except for the group *mean power P*. What is a number in the parts
below is traced, so that algorithms which differ in numbers alone share one program.
"""

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
class Scheduled:
    """SGD at the server: its rate is constant, or falls along a cosine to 0 in the last round."""

    rounds: float = jo.traced(at_least=1.0)
    cosine: float = jo.traced(at_least=0.0)  # 1, or 0 for a constant rate
    rate: float = jo.traced(default=1.0, above=0.0)

    answer, output = jo.ReplaceModel.answer, jo.ReplaceModel.output

    def start(self, model):
        return {"round": jnp.float32(0.0)}

    def gain(self, memory):
        done = memory["round"] / self.rounds
        return self.rate * (1.0 - self.cosine * (1.0 - jnp.cos(jnp.pi * done)) / 2.0)

    def __call__(self, seen, state):
        gain, r = self.gain(state.server), state.server["round"]
        return state.model + gain * (seen.estimate - state.model), {"round": r + 1.0}


@jo.part
class Adam:
    """Adam at the server, with the schedules of `Scheduled`; Reddi et al., 2021."""

    rounds: float = jo.traced(at_least=1.0)
    cosine: float = jo.traced(at_least=0.0)
    rate: float = jo.traced(default=0.1, above=0.0)

    answer, output = jo.ReplaceModel.answer, jo.ReplaceModel.output
    gain = Scheduled.gain

    def start(self, model):
        return {"round": jnp.float32(0.0), "mean": 0.0 * model, "square": 0.0 * model}

    def __call__(self, seen, state):
        old, step = state.server, seen.estimate - state.model
        mean, square = 0.9 * old["mean"] + 0.1 * step, 0.99 * old["square"] + 0.01 * step**2
        r = old["round"] + 1.0
        root = jnp.sqrt(square / (1.0 - 0.99**r)) + 1e-3
        model = state.model + self.gain(old) * mean / (1.0 - 0.9**r) / root
        return model, {"round": r, "mean": mean, "square": square}


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
    plain, means = precoded["COTAF"], coded["COTAF, coded means"]
    coded |= {
        "COTAF, coded means, cosine": means.replace(server=Scheduled(rounds, 1.0)),
        "COTAF, coded means, tail": means.replace(server=TailAverage(rounds // 2 + 1.0)),
    }
    minibatch = {
        f"minibatch SGD × {scale:g}, coded means{', cosine' * int(cosine)}": means.replace(
            local=LargeBatch(**LOCAL, scale=scale), server=Scheduled(rounds, cosine)
        )
        for scale in (1.0, 0.5)
        for cosine in (0.0, 1.0)
    }
    adam = {
        f"FedAdam {rate:g}{', cosine' * int(cosine)}": Adam(rounds, cosine, rate)
        for rate in (0.03, 0.1, 0.3, 1.0)
        for cosine in (0.0, 1.0)
    }
    others = {
        "FedAvgM": jo.Optimizer(optax.sgd(0.1, momentum=0.9)),
        "FedYogi": jo.Optimizer(optax.yogi(0.1, b2=0.99, eps=1e-3)),
        "FedAdagrad": jo.Optimizer(optax.adagrad(0.3, eps=1e-3)),
        "cosine": Scheduled(rounds, 1.0),
    }
    server = {f"COTAF, {k}": plain.replace(server=v) for k, v in (adam | others).items()}
    groups = {"coded means": coded, "minibatch SGD": minibatch, "mean power P": power}
    return groups | {"server optimisers": server}
