"""One communication round, all rounds of one trial, and all trials: the heart of the simulator.

Everything here is written for one trial, without batch axes; `jax.vmap` runs trials and settings.
`one_round` goes down the stages once:

    broadcast model → local steps of every user → compress → precode → channel → estimate → server

for the model block, and with controls for the control block beside it.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from jaxota._core import prng, stage_checks
from jaxota._core.arguments import Kept, Options
from jaxota._core.devices import in_chunks
from jaxota._core.part import Memory, PerUser, Scalar, Vector
from jaxota._core.schedule import at_round
from jaxota._core.scoring import scorer
from jaxota._core.state import Checkpoint, Info, Ledger, Moments, Plan, Resumed, State
from jaxota.algorithms import Algorithm
from jaxota.history import History
from jaxota.stages.answers import Link
from jaxota.stages.channel import Block, Carrier, Channel, noise_over
from jaxota.stages.compress import SideInfo
from jaxota.stages.local import LocalUpdate
from jaxota.stages.server import Aggregate, Server
from jaxota.tasks import weights as weights_
from jaxota.tasks.problem import Cohort, Problem, Task

Rows: TypeAlias = tuple[Moments, ...]  # the plan's, one for each block; empty without a plan


def one_round(
    keys: Key[Array, "7"],
    algorithm: Algorithm,
    channel: Carrier,
    problem: Problem,
    moments: Rows,
    state: State,
    cohort: int | None = None,
) -> tuple[State, Info]:
    """Run one communication round of one trial; return the state after it, and its record.

    The `keys` are for the minibatches, the controls' minibatches, the noise of both blocks, and the
    links (three): the same whatever the algorithm, so that comparisons are paired.

    Where the channel draws beforehand who takes part, and the algorithm supports it, only a
    `cohort` of that size computes.
    """
    carrier = stage_checks.checked(algorithm, "algorithm", problem).medium(channel)
    weights = weights_.relative(getattr(problem, "weights", None))
    # A bound on the norms that users send grows by the largest weight.
    largest = 1.0 if weights is None else weights.max()
    # The channel fades, once for both blocks: who is heard, and how well.
    facts = keys[4:], state.fading, problem.users, problem.dim, algorithm.local.controlled
    run = keys[:4], algorithm, carrier
    drawn = carrier.cohort(*facts, cohort) if cohort and algorithm.cohorts else None
    if drawn is None:
        *links, fading = carrier.links(*facts)
        after, info = _round(*run, problem, moments, state, weights, largest, links)
        return after.replace(fading=fading), info
    # The members' rows of what all users have are taken, and their memory is put back after.
    members, *links, fading = drawn
    memory = state.local, state.compress
    moments = tuple(rows.of(members) for rows in moments)
    weights = None if weights is None else weights[members]
    local, compress = jax.tree.map(lambda x: x[members], memory)
    state = state.replace(local=local, compress=compress)
    problem = Cohort(problem, members)
    after, info = _round(*run, problem, moments, state, weights, largest, links)
    new = after.local, after.compress
    local, compress = jax.tree.map(lambda x, rows: x.at[members].set(rows), memory, new)
    after = after.replace(local=local, compress=compress, fading=fading)
    return after, info.replace(members=members)


def _round(
    keys: Key[Array, "4"],
    algorithm: Algorithm,
    carrier: Any,
    problem: Problem,
    moments: Rows,
    state: State,
    weights: PerUser | None,
    largest: Scalar | float,
    links: list[Link],
) -> tuple[State, Info]:
    """Run a round of the users of `problem`, all or a cohort; `links` say who is heard.

    The weights of users have mean 1 over all of them, and `largest` is the largest. The state's
    fading is left as it is.
    """
    k_batch, k_control, k_noise, k_control_noise = keys
    algorithm = stage_checks.checked(algorithm, "algorithm", problem)
    local, server, carrier = algorithm.local, algorithm.server, carrier.of(problem)

    # Every user takes K steps from the broadcast model: updates Δ_i = θ_i − θ̂ and controls c_i.
    update = local(k_batch, k_control, problem, state)
    # Users send w_i·value, so that the superposed average is the weighted one.
    sent = _weighted(update, weights)

    # Each block goes over the air by itself, with its own power budget, noise and estimate.
    blocks = _blocks(algorithm, carrier, sent, moments, state, largest)
    links = _chosen(server, carrier, blocks[0], links, state)
    block_keys = (k_noise, k_batch), (k_control_noise, k_control)
    memories = zip(state.compress, state.estimate, strict=True)
    per_block = zip(block_keys, blocks, links, memories, strict=False)
    results = [_transmit(*block, algorithm, carrier, state) for block in per_block]
    received, compress, estimate, ledgers = zip(*results, strict=True)

    # The server steps. Where nobody was heard, the model and ĉ stay as they were.
    link = links[0]
    step = server(received[0], state)
    model, server_memory = _if_anyone(link, step, (state.model, state.server))
    control = _if_anyone(link, received[1].estimate, state.control) if local.controlled else None

    # Users learn who was heard before they remember: a user outside S^r keeps its old c_i.
    memory = local.remember(state.local, update.memory, link.heard)

    output = server.output(model, server_memory)
    average, weight = _accumulate(state, output, problem.strong_convexity * local.reach)
    after = State(
        model, control, memory, compress, estimate, server_memory, average, weight, state.fading
    )
    models = state.model[None] + _moved(update)
    return after, Info(_moved(sent), sent.controls, ledgers, output, link.heard, models)


def _weighted(update: LocalUpdate, weights: PerUser | None) -> LocalUpdate:
    """Return what users send where they have weights in the objective."""
    names = "update", "controls", "moved"
    return update.replace(**{k: weights_.times(weights, getattr(update, k)) for k in names})


def _blocks(
    algorithm: Algorithm,
    carrier: Carrier,
    update: LocalUpdate,
    moments: Rows,
    state: State,
    largest: Scalar | float,
) -> list[Block]:
    """Return the model block and, if there are controls, the control block, with reports."""
    compress, server = algorithm.compress, algorithm.server
    rows: tuple[Any, ...] = moments or (stage_checks.Unplanned(), stage_checks.Unplanned())
    energies = _energies(update.update)
    reports = dict(update.reports or {}) | compress.report(update.update, state.compress[0])
    if getattr(server, "norms", False):
        reports |= {"norm": jnp.sqrt(energies)}
    model = Block(
        values=update.update,
        held=state.model[None] + _moved(update),  # θ_i: the estimators' prior is on the weights
        origin=state.model,
        power=carrier.power,
        reach=algorithm.local.reach * largest,
        moments=rows[0],
        energies=energies,
        side=SideInfo(reports=reports),
    )
    if update.controls is None:
        return [model]
    control = Block(
        values=update.controls,
        held=update.controls,
        origin=jnp.zeros_like(state.model),
        power=carrier.control_budget,
        reach=jnp.float32(1.0) * largest,
        moments=rows[1],
        energies=_energies(update.controls),
        side=SideInfo(reports=compress.report(update.controls, state.compress[1])),
    )
    return [model, control]


def _chosen(
    server: Server, carrier: Carrier, model: Block, links: list[Link], state: State
) -> list[Link]:
    """Return the links with those users silenced whom the server does not choose."""
    noise = _known_noise(model, carrier, state)
    chosen = server.choose(state.server, model.side.reports, noise, links[0])
    if chosen is None:
        return links
    return [link.replace(heard=link.heard * (chosen > 0)) for link in links]


def _known_noise(block: Block, carrier: Carrier, state: State) -> Scalar:
    """Return sw2/P of a block as the server knows it, 0 over error-free links."""
    noise = noise_over(block.power, carrier, state.model.size)
    return noise if noise is not None else jnp.float32(0.0)


def _energies(values: Float[Array, "user s"]) -> Float[Array, "user"]:
    """Return ‖·‖² of each user's vector."""
    return jnp.sum(values**2, -1)


def _moved(update: LocalUpdate) -> Float[Array, "user d"]:
    """Return θ_i − θ̂, which is what users send unless the local rule says otherwise."""
    return update.moved if update.moved is not None else update.update


def _transmit(
    keys: tuple[PRNGKeyArray, PRNGKeyArray],
    block: Block,
    link: Link,
    memories: tuple[Memory, Memory],
    algorithm: Algorithm,
    carrier: Carrier,
    state: State,
) -> tuple[Aggregate, Memory, Memory, Ledger]:
    """Send one block from the users to the server.

    Returns:
        What the server receives, the memory of compressor and estimator, and the ledger.
    """
    (k_noise, k_shared), (compress_memory, estimate_memory) = keys, memories
    compress, precode, estimator = algorithm.compress, algorithm.precode, algorithm.estimate
    noise = noise_over(block.power, carrier, state.model.size)  # sw2/P, None on error-free links

    # Side information over a coded link, before anything goes on the air.
    reports, known_noise = block.side.reports, _known_noise(block, carrier, state)
    answer = algorithm.server.answer(state.server, reports, known_noise, link)
    # Minibatches read this key's words and draw nothing from it: what is folded in is fresh.
    side = SideInfo(prng.fold_in(k_shared, 1), reports, answer)

    # Users: compress, then scale so that the budget is met.
    values, encoded = compress.encode(block.values, compress_memory, side)
    sent = block.replace(values=values, energies=_energies(values), side=side)
    energy = precode.energy(sent)

    # Channel and server: the sum of all signals plus noise, gains undone, then the estimate.
    average, deviation, power = carrier.carry(k_noise, sent, energy, noise, link)
    average, deviation = compress.decode(average, deviation, link, side, state.model.size)
    estimate, memory = estimator(average, deviation, sent, link, estimate_memory)

    error = None
    if getattr(compress, "averages", True):
        error = jnp.sum((estimate - (block.origin + link.mean(block.values))) ** 2)
        error = _if_anyone(link, error, jnp.float32(0.0))
    symbols = values.shape[-1] * getattr(carrier, "reals", 1)
    heard = link.heard
    if getattr(compress, "by_symbol", False):
        heard = link.by_symbol(values.shape[1]).heard
    # Some precoders and estimators need reports of their own, but not over error-free links.
    over_the_air = (precode, estimator) if noise is not None else ()
    count = len(reports) + sum(getattr(stage, "reports", 0) for stage in over_the_air)
    return (
        Aggregate(estimate, deviation, link, side),
        compress.remember(compress_memory, encoded, heard),
        _if_anyone(link, memory, estimate_memory),
        Ledger(
            energy=sent.energies,
            power=power,
            reports=jnp.float32(count),
            deviation=deviation,
            error=error,
            uses=jnp.float32(symbols if noise is not None else 0),
            spent=jnp.asarray(block.power * jnp.sum(power)),
        ),
    )


def _if_anyone(link: Link, after: Any, before: Any) -> Any:
    """Return `after`, or `before` where nobody is heard."""
    anyone = link.heard.sum() > 0
    return jax.tree.map(lambda new, old: jnp.where(anyone, new, old), after, before)


def _accumulate(state: State, model: Vector, contraction: Scalar) -> tuple[Vector, Scalar]:
    """Return the average with weights w_r = (1 − μη̃/2)^{1−r}, eq. final_output, and its weight.

    The weights grow without bound. Kept in units of the newest, their sum does not overflow.
    """
    weight = jnp.maximum(1.0 - contraction / 2.0, 0.0) * state.weight + 1.0
    # Not divided by the weight: XLA would multiply by 1/weight in some programs and not in others.
    return state.average + (model - state.average) * (1.0 / weight), weight


def one_trial(
    key: PRNGKeyArray,
    trial: Int[Array, ""],
    algorithms: Sequence[Algorithm],
    channel: Carrier,
    problem: Problem,
    moments: tuple[Rows, ...],
    start: Any,
    rounds: int,
    reveal: Callable[[Int[Array, ""], State, Info, State], Any],
    done: Any = 0,
    cohort: int | None = None,
    total: int = 0,
) -> tuple[tuple[State, ...], tuple[Any, ...]]:
    """Run all rounds of one trial, for several algorithms side by side on the same random numbers.

    Args:
        key, trial: the experiment's key, and the number of the trial, which is folded in.
        algorithms, channel, problem: the parts; `problem` has the users' data of this trial.
        moments: rows of each algorithm's plan, block by block.
        start: [d] the model where all start, or the tuple of leaves of the only algorithm's state
            to go on from; `None` to draw a model from the task.
        rounds: R.
        reveal: `reveal(r, before, info, after)` is kept of each round.
        done: rounds before the first one, if the run goes on.
        cohort: the number of users who compute, where that is known beforehand; None for all.
        total: rounds of the whole run, at least `done + rounds`; by default that.

    Returns:
        Each algorithm's last state, and what was revealed of its rounds [round, …].
    """
    channel = stage_checks.checked(channel, "channel", problem)
    # One split for the trial: a round's keys depend on the trial and on r, not on R.
    keys = prng.split(prng.fold_in(key, trial), 3 + 7 * (total or done + rounds))
    k_init, k_start = keys[0], keys[1:3]
    k_rounds = jax.lax.dynamic_slice_in_dim(keys[3:].reshape(-1, 7), done, rounds)
    resumed = isinstance(start, tuple)
    model = None if resumed else start
    if model is None:
        model = stage_checks.checked_problem(problem).init(k_init)

    def at(r: Any) -> list[Algorithm]:
        return [at_round(algorithm, r) for algorithm in algorithms]

    states = tuple(_first_state(k_start, each, channel, problem, model) for each in at(done))
    if resumed:
        states = (stage_checks.state(start, states[0]),)

    def step(states: tuple[State, ...], xs: Any) -> tuple[tuple[State, ...], tuple[Any, ...]]:
        r, keys, rows = xs
        after, revealed = [], []
        for algorithm, row, state in zip(at(done + r - 1), rows, states, strict=True):
            next_state, info = one_round(keys, algorithm, channel, problem, row, state, cohort)
            after.append(next_state)
            revealed.append(reveal(r, state, info, next_state))
        return tuple(after), tuple(revealed)

    return jax.lax.scan(step, states, (jnp.arange(1, rounds + 1), k_rounds, moments))


def _first_state(
    keys: Key[Array, "2"], algorithm: Algorithm, channel: Carrier, problem: Problem, model: Vector
) -> State:
    """Return the state before round 1."""
    k_local, k_fading = keys
    algorithm = stage_checks.checked(algorithm, "algorithm", problem)
    blocks = 2 if algorithm.local.controlled else 1
    control, memory = algorithm.local.start(k_local, problem, model)
    server = algorithm.server.start(model)
    return State(
        model=model,
        control=control,
        local=memory,
        compress=(algorithm.compress.start(problem.users, problem.dim),) * blocks,
        estimate=(algorithm.estimate.start(problem.dim),) * blocks,
        server=server,
        average=algorithm.server.output(model, server),
        weight=jnp.float32(1.0),
        fading=algorithm.medium(channel).start(k_fading, problem.users),
    )


def run_all(
    options: Options,
    key: PRNGKeyArray,
    trials: Int[Array, "trial"],
    algorithms: Sequence[Algorithm],
    channel: Channel,
    task: Task,
    plans: Sequence[Plan | None],
    start: Float[Array, "trial d"] | tuple[Array, ...] | Resumed | None,
) -> tuple[History, ...]:
    """Run several algorithms side by side, each with its plan; to be compiled.

    `start` holds initial models, or the leaves [trial, …] of states to continue from, after
    `options.done` rounds or as many as a `Resumed` says.
    """
    every: int = options.every
    done: Any = options.done  # of a block of a longer run it is traced
    if isinstance(start, Resumed):
        start, done = start
    rows = (options.rounds, done)
    moments = tuple(a.moments(plan, *rows) for a, plan in zip(algorithms, plans, strict=True))

    def trial(t: Int[Array, ""]) -> Any:
        problem = stage_checks.problem(task, t)
        score = scorer(problem, options.kept)

        def reveal(r: Int[Array, ""], before: State, info: Info, after: State) -> Any:
            record, seen = _record(info, task.users, options.kept), (info.output, info.models)
            if every == 1:
                return score(*seen), record
            zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(score, *seen))
            # r is the same in all trials, so that this stays a branch under vmap.
            return jax.lax.cond(r % every == 0, score, lambda *_: zeros, *seen), record

        def last(algorithm: Algorithm, state: State) -> dict[str, Any]:
            server = stage_checks.checked(algorithm, "algorithm", problem).server
            model = server.output(state.model, state.server)
            scored = stage_checks.checked_problem(problem).score
            scores = scored(state.average) if options.average_scores else {}
            kept = tuple(jax.tree.leaves(state)) if options.keep_state else None
            results = {"model": model, "average": state.average, "average_scores": scores}
            return results | {"state": kept}

        own = jax.tree.map(lambda values: values[t], start)
        run = key, t, algorithms, channel, problem, moments, own, options.rounds
        states, revealed = one_trial(*run, reveal, done, options.cohort, options.total)
        return tuple(map(last, algorithms, states)), revealed

    histories = []
    for last, (scores, record) in zip(*in_chunks(trial, trials, options.chunk), strict=True):
        # Rounds in between were not scored: `reveal` put zeros there.
        scores, by_user = jax.tree.map(lambda x: x[:, every - 1 :: every], scores)
        stage_checks.check_scores(scores)
        if options.keep_state:
            last["state"] = Checkpoint(last["state"], options.done + options.rounds)
        last |= {"scores": scores, "user_scores": by_user}
        histories.append(History(**record, **last, every=every, done=options.done))
    return tuple(histories)


def _record(info: Info, users: int, kept: Kept) -> dict[str, Any]:
    """Return the fields of a history that describe one round; users who send nothing count too."""
    record: dict[str, Any] = {"participants": info.heard.sum()}
    if kept.heard:
        record["heard"] = info.of_all(info.heard, users)
    for name, of in (("reports", "reports"), ("uses", "uses"), ("energy", "spent")):
        record[name] = jnp.asarray(sum(getattr(ledger, of) for ledger in info.blocks))
    for block, ledger in zip(("", "control_"), info.blocks, strict=False):
        record |= {
            f"{block}power": jnp.max(ledger.power),
            f"mean_{block}power": jnp.sum(ledger.power) / users,
            f"{block}error": ledger.error,
            f"{block}deviation": ledger.deviation,
        }
        if kept.user_power:
            record[f"user_{block}power"] = info.of_all(ledger.power, users)
    return record
