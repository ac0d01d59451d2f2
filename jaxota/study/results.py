"""Histories and summaries from the data set of a study."""

from typing import Any

import jax
import numpy as np

from jaxota.history import DIMENSIONS, History


def history(dataset: Any, **place: Any) -> History:
    """The history of one algorithm in one setting, which `place` selects by labels."""
    at = dataset.sel(place)

    def values(name: str) -> Any:
        """() where it was never written: an algorithm without controls has none."""
        if name not in at:
            return None
        found = np.asarray(at[name].values)
        return None if "control" in name and np.isnan(found).all() else found

    scores: dict[str, Any] = {name: np.asarray(at[name].values) for name in dataset.attrs["scores"]}
    averages = {name: values(f"average_{name}") for name in scores}
    rest = {name: values(name) for name in DIMENSIONS}
    return History(scores, **rest, average_scores=averages, every=int(dataset.attrs["every"]))


def swept(dataset: Any) -> History:
    """The history of a study's only algorithm in all settings: [setting, trial, …]."""
    names = dataset.attrs["axes"]
    sizes = {name: dataset.sizes[name] for name in names}
    found = history(dataset.transpose("algorithm", *names, ...).isel(algorithm=0))
    if _padded(found.model):  # models of several lengths are no array
        found = found.replace(model=None, average=None)
    flat = jax.tree.map(lambda x: np.reshape(x, (-1, *np.shape(x)[len(names) :])), found)
    settings = {}
    for name, labels in dataset.coords.items():
        if labels.dims and labels.dims[0] in names and name != "setting":
            others = {k: size for k, size in sizes.items() if k != labels.dims[0]}
            whole = labels.drop_vars(labels.coords).expand_dims(others).transpose(*names)
            settings[str(name)] = whole.values.ravel()
    return flat.replace(settings=settings, grid=tuple(sizes.items()))


def _padded(models: Any) -> bool:
    """Whether some settings' models end in what is none of theirs: NaN in all trials."""
    none = np.isnan(models).all(-2)  # [axes…, parameter]
    return bool((none[..., -1] & ~none[..., 0]).any())
