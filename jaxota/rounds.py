"""One communication round, and all rounds of one trial."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from jaxota._core import prng as _random
from jaxota._core import stage_checks as _watched
from jaxota._core.part import Memory, Scalar, Vector
from jaxota._core.state import Info, Ledger, Moments, State
from jaxota.algorithms import Algorithm
from jaxota.stages.channel import Block, Carrier, noise_over, superpose
from jaxota.stages.compress import SideInfo
from jaxota.stages.fading import Link
from jaxota.stages.local import LocalUpdate
from jaxota.stages.server import Aggregate
from jaxota.tasks.problem import Problem


def one_round(
    keys: Key[Array, "7"],
    algorithm: Algorithm,
    channel: Carrier,
    problem: Problem,
    moments: tuple[Moments, ...],
    state: State,
) -> tuple[State, Info]:
    """One communication round of one trial: `state` → the next one, and what was seen.

    `keys` serve the minibatches, the controls' minibatches, the noise of both blocks, and the
    links; `moments` is the plan's row for this round, one for each block, or `None`.
    """
    k_batch, k_control, k_noise, k_control_noise, *k_links = keys
    local, air = algorithm.local, algorithm.medium(channel)
    work = local(k_batch, k_control, problem, state)
    *links, fading = air.links(k_links, state.fading, problem.users, problem.dim, local.controlled)
    blocks = _blocks(algorithm, air, work, moments, state)
    pairs = (k_noise, k_batch), (k_control_noise, k_control)
    seen, compress, estimate, ledgers = zip(
        *(
            _aggregate(*each, algorithm, air, problem, state)
            for each in zip(pairs, blocks, links, state.compress, state.estimate, strict=False)
        ),
        strict=True,
    )
    link, step = links[0], algorithm.server(seen[0], state)
    model, server = _if_anyone(link, step, (state.model, state.server))
    control = _if_anyone(link, seen[1].estimate, state.control) if local.controlled else None
    remembered = local.remember(state.local, work.memory, link.heard)
    output = algorithm.server.output(model, server)
    average, weight = _accumulate(state, output, problem.strong_convexity * local.reach)
    after = State(model, control, remembered, compress, estimate, server, average, weight, fading)
    return after, Info(_moved(work), work.controls, ledgers, output, link.heard.sum())


def _blocks(
    algorithm: Algorithm,
    air: Carrier,
    work: LocalUpdate,
    moments: tuple[Moments, ...],
    state: State,
) -> list[Block]:
    """What the local rule sends: the model block and, if it has controls, the control block."""
    rows: tuple[Any, ...] = moments or (_watched.Unplanned(), _watched.Unplanned())
    local = algorithm.local
    model = Block(
        values=work.update,
        held=state.model[None] + _moved(work),
        origin=state.model,
        power=air.power,
        reach=local.reach,
        moments=rows[0],
        energies=_energies(work.update),
        side=SideInfo(reports=dict(work.reports or {})),
    )
    if work.controls is None:
        return [model]
    control = Block(
        values=work.controls,
        held=work.controls,
        origin=jnp.zeros_like(state.model),
        power=air.control_budget,
        reach=jnp.float32(1.0),
        moments=rows[1],
        energies=_energies(work.controls),
    )
    return [model, control]


def _energies(values: Float[Array, "user s"]) -> Float[Array, "user"]:
    """‖·‖² of each user's vector."""
    return jnp.sum(values**2, -1)


def _moved(work: LocalUpdate) -> Float[Array, "user d"]:
    """θ_i − θ̂."""
    return work.moved if work.moved is not None else work.update


def _aggregate(
    keys: tuple[PRNGKeyArray, PRNGKeyArray],
    block: Block,
    link: Link,
    compressed: Memory,
    estimated: Memory,
    algorithm: Algorithm,
    air: Carrier,
    problem: Problem,
    state: State,
) -> tuple[Aggregate, Memory, Memory, Ledger]:
    """One block from the users to the server; `compressed` and `estimated` are what compressor and
    estimator remember of it.

    Returns what the server holds of the block, what both remember now, and its ledger.
    """
    (k_noise, k_shared), compress = keys, algorithm.compress
    noise = noise_over(block.power, air, problem.dim)
    side = _exchange(k_shared, algorithm, noise, block, link, compressed, state.server)
    values, kept = compress.encode(block.values, compressed, side)
    sent = block.replace(values=values, energies=_energies(values), side=side)
    energy = algorithm.precode.energy(sent)
    received, deviation, power = superpose(k_noise, sent, energy, noise, link, air.noise)
    received = compress.decode(received, deviation, link, side)
    estimate, memory = algorithm.estimate(received, deviation, sent, link, estimated)
    truth = block.origin + link.mean(block.values)
    error = _if_anyone(link, jnp.sum((estimate - truth) ** 2), jnp.float32(0.0))
    return (
        Aggregate(estimate, deviation, link, side),
        compress.remember(compressed, kept, link.heard),
        _if_anyone(link, memory, estimated),
        Ledger(sent.energies, power, _reports(algorithm, side, noise), deviation, error),
    )


def _reports(algorithm: Algorithm, side: SideInfo, noise: Scalar | None) -> Scalar:
    """How many coded scalars each user reported: what a precoder and an estimator must hear, too,
    but where nothing is on the air.
    """
    over_the_air = (algorithm.precode, algorithm.estimate) if noise is not None else ()
    asked = sum(getattr(each, "reports", 0) for each in over_the_air)
    return jnp.float32(len(side.reports) + asked)


def _exchange(
    key: PRNGKeyArray,
    algorithm: Algorithm,
    noise: Scalar | None,
    block: Block,
    link: Link,
    compressed: Memory,
    server: Memory,
) -> SideInfo:
    """Before anything is sent: the users' coded reports, and the server's answer to them."""
    reports = block.side.reports | algorithm.compress.report(block.values, compressed)
    known = noise if noise is not None else jnp.float32(0.0)
    answer = algorithm.server.answer(server, reports, known, link)
    # Minibatches read this key's words and draw nothing from it: what is folded in is fresh.
    return SideInfo(_random.fold_in(key, 1), reports, answer)


def _if_anyone(link: Link, after: Any, before: Any) -> Any:
    """`after`, or `before` where nobody is heard."""
    anyone = link.heard.sum() > 0
    return jax.tree.map(lambda new, old: jnp.where(anyone, new, old), after, before)


def one_trial(
    key: PRNGKeyArray,
    trial: Int[Array, ""],
    algorithms: Sequence[Algorithm],
    channel: Carrier,
    problem: Problem,
    moments: tuple[tuple[Moments, ...], ...],
    model: Vector | None,
    rounds: int,
    reveal: Callable[[Int[Array, ""], State, Info, State], Any],
) -> tuple[tuple[State, ...], tuple[Any, ...]]:
    """All rounds of one trial, for several algorithms side by side on the same random numbers.

    `moments` holds each algorithm's rows of its plan; `model` is where all start, or `None` to
    draw it from the task. Returns each algorithm's last state, and `reveal(r, before, info, after)`
    of each of its rounds.
    """
    algorithms = [_watched.algorithm(each, problem) for each in algorithms]
    channel = _watched.channel(channel, problem)
    keys = _random.split(_random.fold_in(key, trial), 3 + 7 * rounds)
    k_init, k_start, k_fading, k_rounds = *keys[:3], keys[3:].reshape(rounds, 7)
    first = model if model is not None else _watched.first(problem, k_init)

    def step(states: tuple[State, ...], xs: Any) -> tuple[tuple[State, ...], tuple[Any, ...]]:
        r, keys, rows = xs
        after, seen = [], []
        for algorithm, row, state in zip(algorithms, rows, states, strict=True):
            next_state, info = one_round(keys, algorithm, channel, problem, row, state)
            after.append(next_state)
            seen.append(reveal(r, state, info, next_state))
        return tuple(after), tuple(seen)

    states = tuple(_first(k_start, k_fading, a, channel, problem, first) for a in algorithms)
    return jax.lax.scan(step, states, (jnp.arange(1, rounds + 1), k_rounds, moments))


def _first(
    k_start: PRNGKeyArray,
    k_fading: PRNGKeyArray,
    algorithm: Algorithm,
    channel: Carrier,
    problem: Problem,
    model: Vector,
) -> State:
    """The state before round 1."""
    blocks = 2 if algorithm.local.controlled else 1
    control, memory = algorithm.local.start(k_start, problem, model)
    compress = algorithm.compress.start(problem.users, problem.dim)
    estimate = algorithm.estimate.start(problem.dim)
    server = algorithm.server.start(model)
    return State(
        model=model,
        control=control,
        local=memory,
        compress=(compress,) * blocks,
        estimate=(estimate,) * blocks,
        server=server,
        average=algorithm.server.output(model, server),
        weight=jnp.float32(1.0),
        fading=algorithm.medium(channel).start(k_fading, problem.users),
    )


def _accumulate(state: State, model: Vector, contraction: Scalar) -> tuple[Vector, Scalar]:
    """The average with weights w_r = (1 − μη̃/2)^{1−r}, kept in units of the newest weight."""
    weight = jnp.maximum(1.0 - contraction / 2.0, 0.0) * state.weight + 1.0
    return state.average + (model - state.average) / weight, weight
