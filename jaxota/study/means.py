"""Count, mean and variance in place of trajectories: of each block, merged without loss."""

from typing import Any

import numpy as np

from jaxota.study.spaces import Space, Variable

# What is added up over trials, and what is not: models, and every user's power.
_LEFT_OUT = ("model", "average", "user_power", "user_control_power")


def space(full: Space, scores: list[str]) -> Space:
    """Where the moments of a study's blocks are kept: an axis of blocks in the place of trials."""
    blocks = dict(full.blocks)
    pieces = -(-full.sizes["trial"] // blocks.pop("trial"))
    sizes = {k: v for k, v in full.sizes.items() if k not in ("trial", "parameter", "user")}
    variables: dict[str, Variable] = {}
    for name, variable in full.variables.items():
        if name in _LEFT_OUT:
            continue
        dims = tuple("block" if d == "trial" else d for d in variable.dims)
        kinds = ["", "difference_"] if _score(name, scores) else [""]
        for kind in kinds:
            variables |= {
                f"{name}_{kind}{what}": Variable(dims, "float64") for what in ("mean", "m2")
            }
    counted = (*(d for d in sizes if d in ("algorithm", *blocks)), "block")
    variables |= {name: Variable(counted, "float64") for name in ("trials", "used", "pairs")}
    coords = {k: v for k, v in full.coords.items() if v[0] in sizes}
    behind = {"block": (full.sizes["trial"], full.blocks["trial"])}
    return Space(sizes | {"block": pieces}, blocks | {"block": 1}, variables, coords, behind)


def _score(name: str, scores: list[str]) -> bool:
    return name.removeprefix("average_") in scores


def of_block(
    arrays: dict[str, np.ndarray], full: Space, scores: list[str], reference: int, length: int
) -> dict[str, np.ndarray]:
    """Moments over the trials of a block, without those that diverged, as `space` has them.

    Models are so long; what is behind belongs to other blocks' longer ones.
    """
    dims = full.variables[scores[0]].dims
    axis = dims.index("trial")
    whole = [arrays[name] for name in scores] + [arrays["model"][..., :length]]
    finite = np.all([np.isfinite(x).all(-1) for x in whole], 0)  # [algorithm, setting…, trial]
    both = finite & finite[reference][None]
    found = {
        "trials": np.full(finite.shape[:-1], finite.shape[-1], float),
        "used": finite.sum(-1).astype(float),
        "pairs": both.sum(-1).astype(float),
    }
    for name, values in arrays.items():
        if name in _LEFT_OUT:
            continue
        values = values.astype(np.float64)
        found |= _moments(f"{name}_", values, finite, axis)
        if _score(name, scores):
            with np.errstate(invalid="ignore"):
                apart = values - values[reference][None]
            found |= _moments(f"{name}_difference_", apart, both, axis)
    # The axis of blocks stands where that of trials did: last but one, or last.
    counts = {k: v[..., None] for k, v in found.items() if k in ("trials", "used", "pairs")}
    return {k: np.expand_dims(v, axis) for k, v in found.items() if k not in counts} | counts


def _moments(prefix: str, values: np.ndarray, used: np.ndarray, axis: int) -> dict[str, np.ndarray]:
    """Mean and sum of squared deviations over the trials used: two passes."""
    mask = used.reshape(*used.shape, *[1] * (values.ndim - used.ndim))
    count = mask.sum(axis)
    with np.errstate(invalid="ignore"):
        mean = np.where(mask, values, 0.0).sum(axis) / np.where(count > 0, count, np.nan)
        apart = np.where(mask, values - np.expand_dims(mean, axis), 0.0)
    return {f"{prefix}mean": mean, f"{prefix}m2": (apart**2).sum(axis)}


def merged(dataset: Any) -> Any:
    """One mean and variance for all blocks that are there (Chan, Golub and LeVeque, 1983)."""
    counts = {"": dataset.used.fillna(0.0), "difference_": dataset.pairs.fillna(0.0)}
    found = {k: dataset[k].sum("block") for k in ("trials", "used", "pairs")}
    names = [str(k).removesuffix("_mean") for k in dataset if str(k).endswith("_mean")]
    for name in names:
        kind = "difference_" if name.endswith("_difference") else ""
        n, mean = counts[kind], dataset[f"{name}_mean"].fillna(0.0)
        total = n.sum("block")
        centre = (n * mean).sum("block") / total.where(total > 0)
        m2 = (dataset[f"{name}_m2"].fillna(0.0) + n * (mean - centre) ** 2).sum("block")
        absent = dataset[f"{name}_mean"].isnull().all("block")
        found[f"{name}_mean"] = centre.where(~absent)
        found[f"{name}_var"] = (m2 / (total - 1).where(total > 1)).where(~absent)
    kept = {k: v for k, v in dataset.coords.items() if k != "block"}
    return dataset.__class__(found, kept, dataset.attrs)


def finished(dataset: Any, attributes: dict[str, Any]) -> Any:
    """What a user is given of all blocks together."""
    whole = merged(dataset) if attributes.get("keep") == "mean" else dataset
    return whole.assign_attrs(attributes)
