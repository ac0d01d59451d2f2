"""Histories and summaries from the data set of a study."""

from typing import Any

import numpy as np

from jaxota.history import DIMENSIONS, History


def history(dataset: Any, **place: Any) -> History:
    """The history of one algorithm in one setting, which `place` selects by labels."""
    at = dataset.sel(place)

    def values(name: str) -> Any:
        """() where it was never written: an algorithm without controls has none."""
        if name not in at:
            return ()
        found = np.asarray(at[name].values)
        return () if "control" in name and np.isnan(found).all() else found

    scores: dict[str, Any] = {name: np.asarray(at[name].values) for name in dataset.attrs["scores"]}
    averages = {name: values(f"average_{name}") for name in scores}
    rest = {name: values(name) for name in DIMENSIONS}
    return History(scores, **rest, average_scores=averages, every=int(dataset.attrs["every"]))
