"""A plain NumPy twin of the simulator: loops, float64, written from the equations; shares no code
with the package."""

import math

import numpy as np


def synthetic(rng, users, samples, dim, data_spread, model_spread):
    """Rows of A_i ~ N(a_i 1, I), a_i ~ N(1, data_spread); B_i = A_i θ_i with θ_i ~ N(b_i 1, I)."""
    features = np.zeros((users, samples, dim))
    targets = np.zeros((users, samples))
    for i in range(users):
        a = 1.0 + math.sqrt(data_spread) * rng.standard_normal()
        b = -4.0 + math.sqrt(model_spread) * rng.standard_normal()
        features[i] = a + rng.standard_normal((samples, dim))
        targets[i] = features[i] @ (b + rng.standard_normal(dim))
    return features, targets


def optimum(features, targets):
    """Return θ* = argmin F and H = mean_i A_iᵀA_i/D_i, so that F(θ) − F(θ*) = (θ−θ*)ᵀH(θ−θ*)."""
    features, targets = np.asarray(features, float), np.asarray(targets, float)
    users, samples, dim = features.shape
    theta = np.linalg.lstsq(features.reshape(-1, dim), targets.reshape(-1), rcond=None)[0]
    return theta, sum(a.T @ a / samples for a in features) / users


def strong_convexity(features):
    """Return μ, the least eigenvalue over users of the Hessians 2 A_iᵀA_i/D_i."""
    features = np.asarray(features, float)
    least = min(np.linalg.eigvalsh(2 * a.T @ a / len(a))[0] for a in features)
    return max(0.0, float(least))


def loss_of(features, targets, theta):
    """F(θ) = mean_i ‖A_i θ − B_i‖²/D_i."""
    terms = [np.mean((a @ theta - b) ** 2) for a, b in zip(features, targets, strict=True)]
    return float(np.mean(terms))


def gradient(rng, a, b, theta, batch):
    """g_i(θ) = 2 Aᵀ(Aθ − B)/n over `batch` samples drawn with replacement, or over all of them."""
    if batch is not None:
        rows = rng.integers(0, len(b), size=batch)
        a, b = a[rows], b[rows]
    return 2 * a.T @ (a @ theta - b) / len(b)


def first_controls(rng, features, targets, theta, local):
    """c_i^0 = 0 and ĉ^0 = 0, or with a warm start c_i^0 = g_i(θ^0) and ĉ^0 their mean."""
    controls = np.zeros((len(features), len(theta)))
    if local["controlled"] and local.get("warm_start", False):
        for i in range(len(features)):
            batch = local.get("control_batch")
            controls[i] = gradient(rng, features[i], targets[i], theta, batch)
    return controls, controls.mean(axis=0)


def local_round(rng, features, targets, theta, controls, control, local):
    """K steps θ_i ← θ_i − η(g_i(θ_i) − c_i + ĉ) of every user; returns all θ_i and all new c_i."""
    eta, steps = local["step_size"], local["steps"]
    models, fresh = np.zeros_like(controls), np.zeros_like(controls)
    for i in range(len(features)):
        a, b = features[i], targets[i]
        transform = local["transform"]() if local.get("transform") else (lambda u: u)
        models[i] = theta
        for _ in range(steps):
            direction = gradient(rng, a, b, models[i], local["batch"])
            direction = direction + local.get("mu", 0.0) * (models[i] - theta)
            if local["controlled"]:
                direction = direction - controls[i] + control
            models[i] = models[i] - eta * transform(direction)
        if local["controlled"] and local.get("control_option", 1) == 1:
            fresh[i] = gradient(rng, a, b, theta, local.get("control_batch"))
        elif local["controlled"]:
            fresh[i] = controls[i] - control + (theta - models[i]) / (steps * eta)
    return models, fresh


def calibrate(rng, features, targets, *, local, rounds, trials, initial=None):
    """Noise-free run on the first fifth of every user's samples; its energies and moments."""
    features, targets = np.asarray(features, float), np.asarray(targets, float)
    users, samples, dim = features.shape
    few = math.ceil(samples / 5)
    features, targets = features[:, :few], targets[:, :few]
    initial = rng.standard_normal((trials, dim)) if initial is None else np.asarray(initial, float)
    updates = np.zeros((trials, rounds, users, dim))
    models, sent = np.zeros_like(updates), np.zeros_like(updates)
    for t in range(trials):
        theta = initial[t]
        controls, control = first_controls(rng, features, targets, theta, local)
        for r in range(rounds):
            models[t, r], sent[t, r] = local_round(
                rng, features, targets, theta, controls, control, local
            )
            updates[t, r] = models[t, r] - theta
            theta, controls = models[t, r].mean(axis=0), sent[t, r]
            control = controls.mean(axis=0)

    def energy(x):
        """max_i mean_trials ‖x_i‖², per round."""
        return np.max(np.mean(np.sum(x**2, axis=3), axis=0), axis=1)

    both, averages, average_controls = (0, 3), models.mean(axis=2), sent.mean(axis=2)
    plan = {
        "update_energy": energy(updates),
        "model_mean": models.mean(axis=both),
        "model_var": models.var(axis=both),
        "control_energy": energy(sent),
        "control_mean": sent.mean(axis=both),
        "control_var": sent.var(axis=both),
        "average_mean": averages.mean(axis=(0, 2)),
        "average_var": averages.var(axis=(0, 2)),
        "average_control_mean": average_controls.mean(axis=(0, 2)),
        "average_control_var": average_controls.var(axis=(0, 2)),
        "update_mean": updates.mean(axis=both),
        "update_var": updates.var(axis=both),
    }
    if not local["controlled"]:
        plan.update({name: None for name in plan if "control" in name})
    return plan


def squared_gain(precode, block, signals, r):
    """α^r = P / max_i E‖Δ_i^r‖², β^r = P / max_i E‖c_i^r‖²; infinite if that energy is zero."""
    if precode[0] == "constant" and precode[1] is not None:
        return float(precode[1]) ** 2
    if precode[0] == "constant":
        energy = np.max(block["plan"][block["energy"]])
    elif precode[0] == "offline":
        energy = block["plan"][block["energy"]][r]
    elif precode[0] == "online":
        energy = max(x @ x for x in signals)
    elif precode[0] == "bounded":
        energy = (block["bound"] * precode[1]) ** 2
    else:
        raise ValueError(f"unknown precoder {precode[0]!r}")
    return math.inf if energy == 0 else block["budget"] / float(energy)


def draw_fades(rng, scatter, fading, gains, users):
    """Complex h e^{jφ}, E[h²] = 1 before the gains; its estimate ĥ = h + e; the scattered part."""

    def circular():
        return (rng.standard_normal(users) + 1j * rng.standard_normal(users)) / math.sqrt(2)

    law, rho = fading["law"], fading.get("correlation", 0.0)
    if law == "nakagami" and rho != 0.0:
        raise ValueError("no correlation between rounds for Nakagami fading")
    fresh = circular()
    scatter = fresh if scatter is None else rho * scatter + math.sqrt(1 - rho**2) * fresh
    if law == "rayleigh":
        fades = scatter
    elif law == "rician":
        k = fading["k_factor"]
        fades = math.sqrt(k / (k + 1)) + scatter / math.sqrt(k + 1)
    elif law == "nakagami":
        power = rng.gamma(fading["m"], 1 / fading["m"], size=users)
        fades = np.sqrt(power) * np.exp(2j * math.pi * rng.random(users))
    else:
        raise ValueError(f"unknown fading law {law!r}")
    if gains is not None:
        fades = fades * np.sqrt(np.asarray(gains, float))
    return fades, fades + math.sqrt(fading.get("csi_error", 0.0)) * circular(), scatter


def transmit(rng, block, signals, alpha, active, fades, guesses):
    """x_i = √α (h_min/ĥ_i) s_i, y = Σ_S h_i x_i + w: Re y/(|S|√α h_min), its ν, every ‖x_i‖²."""
    size, threshold, noise_var = len(active), block["threshold"], block["noise_var"]
    noise = math.sqrt(noise_var) * rng.standard_normal(signals.shape[1])
    root = 1.0 if math.isinf(alpha) else math.sqrt(alpha)  # an infinite gain leaves no noise
    received = np.zeros(signals.shape[1], complex)
    powers = np.zeros(len(signals))
    for i in active:
        x = root * (threshold / guesses[i]) * signals[i]
        received += fades[i] * x
        powers[i] = np.sum(np.abs(x) ** 2)
    if math.isinf(alpha):
        powers[powers > 0] = math.inf
    else:
        received += noise
    nu = noise_var / (size**2 * alpha * threshold**2)
    return received.real / (size * root * threshold), nu, powers


def prior(rule, block, vectors, r, active):
    """μ = mean_S μ_i and s² = Σ_S σ_i²/|S|², from the plan or as reported.

    Pooled: the average's own moments where all are heard; else s² = Σ_{i,j ∈ S} C_ij/|S|², with
    C_ii = σ_i² and all other C_ij equal, such that Σ_ij C_ij/N² is the average's own variance.
    """
    if rule in ("mmse", "pooled"):
        name = block["moments"]
        means, variances = block["plan"][name + "_mean"][r], block["plan"][name + "_var"][r]
    else:
        means, variances = vectors.mean(axis=1), vectors.var(axis=1)
    mean = sum(float(means[i]) for i in active) / len(active)
    total = sum(float(variances[i]) for i in active)
    if rule == "pooled":
        users, name = len(variances), block["average"]
        mean += float(block["plan"][name + "_mean"][r]) - float(np.mean(means))
        rest = users**2 * float(block["plan"][name + "_var"][r]) - float(np.sum(variances))
        pairs = len(active) * (len(active) - 1)
        total = max(0.0, total + pairs * rest / (users * (users - 1)))
    return mean, total / len(active) ** 2


def estimated(rule, block, noisy, nu, origin, vectors, r, active):
    """MMSE: μ + (θ̃ − μ)/(1 + ν/s²); James-Stein: max(0, 1 − (d−2)₊ν/‖x̃‖²) x̃ from the origin."""
    if rule not in ("identity", "mmse", "reported", "pooled", "updates", "james_stein"):
        raise ValueError(f"unknown estimator {rule!r}")
    if rule == "identity" or nu == 0:
        return noisy
    if rule == "james_stein":
        x = noisy - origin
        size = float(x @ x)
        factor = max(0.0, 1 - max(len(x) - 2, 0) * nu / size) if size > 0 else 0.0
        return origin + factor * x
    if rule == "updates":  # the same of Δ̃ = θ̃ − θ̂, with the prior of what is sent
        own = block | {"moments": block["sent"]}
        return origin + estimated("mmse", own, noisy - origin, nu, 0.0, vectors, r, active)
    mean, var = prior(rule, block, vectors, r, active)
    if math.isinf(var):
        return noisy
    if var == 0:
        return np.full_like(noisy, mean)
    return mean + (noisy - mean) / (1 + nu / var)


def make_blocks(local, channel, plan, dim):
    """The model block (√α Δ_i, h_min) and, with controls, the control block (√β c_i, ρ_min)."""
    budget, apart = channel.get("power", 1.0), channel.get("control_power")
    fading = channel.get("fading") or {"threshold": 1.0, "control_threshold": 1.0}
    noise_var = budget * 10 ** (-channel["snr_db"] / 10)  # sw2 on both blocks; 10^(−∞) = 0
    if channel.get("snr_per", "vector") == "symbol":
        noise_var /= dim
    model = {"plan": plan, "noise_var": noise_var, "budget": budget}
    model.update(moments="model", average="average", energy="update_energy", sent="update")
    model["threshold"] = fading.get("threshold", 0.3)
    model["bound"] = local["steps"] * local["step_size"]  # ‖Δ_i‖ ≤ Kη M
    control = {"plan": plan, "noise_var": noise_var, "budget": budget if apart is None else apart}
    control.update(moments="control", average="average_control", energy="control_energy")
    control["sent"] = "control"
    control["threshold"] = fading.get("control_threshold", 0.3)
    control["bound"] = 1.0  # ‖c_i‖ ≤ M
    return [model, control] if local["controlled"] else [model]


def simulate(
    rng,
    features,
    targets,
    *,
    local,
    precode,
    estimate,
    channel,
    rounds,
    trials,
    plan=None,
    initial=None,
):
    """Rounds of local steps, θ̃ = θ̂ + y/(|S|√α h_min), θ̂ ← U(θ̃), c̃ = z/(|S|√β ρ_min), ĉ ← U(c̃)."""
    features, targets = np.asarray(features, float), np.asarray(targets, float)
    users, _, dim = features.shape
    local_rng, channel_rng, plan_rng = rng.spawn(3)  # apart, so that the channel moves no minibatch
    needs_plan = estimate in ("mmse", "pooled", "updates") or tuple(precode) == ("constant", None)
    if plan is None and precode[0] != "errorfree" and (needs_plan or precode[0] == "offline"):
        plan = calibrate(plan_rng, features, targets, local=local, rounds=rounds, trials=100)
    if initial is None:
        initial = local_rng.standard_normal((trials, dim))
    fading, gains, subset = (channel.get(key) for key in ("fading", "gains", "participants"))
    if gains is not None and not fading:
        raise ValueError("mean power gains need fading")
    blocks = make_blocks(local, channel, plan, dim)
    best, curvature = optimum(features, targets)
    gap, loss = np.zeros((trials, rounds)), np.zeros((trials, rounds))
    participants = np.zeros((trials, rounds), int)
    user_power = np.zeros((len(blocks), trials, rounds, users))
    error = np.zeros((len(blocks), trials, rounds))
    path = np.zeros((trials, rounds + 1, dim))
    for t in range(trials):
        theta = path[t, 0] = np.asarray(initial[t], float)
        controls, control = first_controls(local_rng, features, targets, theta, local)
        scatter = [None] * len(blocks)
        for r in range(rounds):
            models, fresh = local_round(
                local_rng, features, targets, theta, controls, control, local
            )
            active = list(range(users))
            fades = guesses = [np.ones(users, complex)] * len(blocks)
            if precode[0] != "errorfree" and subset is not None:
                active = sorted(channel_rng.choice(users, size=subset, replace=False))
            if precode[0] != "errorfree" and fading:
                draws = [draw_fades(channel_rng, past, fading, gains, users) for past in scatter]
                fades, guesses, scatter = zip(*draws, strict=True)
                for block, guess in zip(blocks, guesses, strict=True):
                    active = [i for i in active if abs(guess[i]) > block["threshold"]]
            received = [theta, control]  # what an empty S leaves as it was
            for k, block in enumerate(blocks if active else []):
                vectors = (models, fresh)[k]
                true = vectors[active].mean(axis=0)
                if precode[0] == "errorfree":
                    received[k] = true
                    continue
                origin = (theta, np.zeros(dim))[k]  # Δ_i = θ_i − θ̂ is sent, but c_i itself
                signals = vectors - origin
                alpha = squared_gain(precode, block, signals, r)
                average, nu, powers = transmit(
                    channel_rng, block, signals, alpha, active, fades[k], guesses[k]
                )
                received[k] = estimated(
                    estimate, block, origin + average, nu, origin, vectors, r, active
                )
                error[k, t, r] = np.sum((received[k] - true) ** 2)
                user_power[k, t, r] = powers / block["budget"]
            theta, control = received
            controls[active] = fresh[active]  # the others keep their old c_i
            path[t, r + 1] = theta
            participants[t, r] = len(active)
            gap[t, r] = (theta - best) @ curvature @ (theta - best)
            loss[t, r] = loss_of(features, targets, theta)

    # w_r = q^{1−r} with q = 1 − μKη/2, all divided by the last one, so that none overflows
    q = 1 - strong_convexity(features) * local["steps"] * local["step_size"] / 2
    weights = np.array([q ** (rounds - k) for k in range(rounds + 1)])
    power = user_power.max(axis=3)
    out = {"gap": gap, "loss": loss, "participants": participants, "model": path[:, -1]}
    out["average"] = np.einsum("r,trd->td", weights, path) / np.sum(weights)
    out.update(power=power[0], error=error[0], user_power=user_power[0])
    out.update(control_power=None, control_error=None)
    if local["controlled"]:
        out.update(control_power=power[1], control_error=error[1])
    return out
