"""Experiments and studies from plain words, so that other processes can make them, too.

A spec is JSON: the name of an experiment, or a user's own file as it is, and what was asked for.
"""

import dataclasses
import functools
import json
import shlex
import sys
import types
from pathlib import Path
from typing import Any

from jaxota._core import inputs as _validate
from jaxota.errors import InputError
from jaxota.reports import Experiment
from jaxota.study.executor import StudyJob
from jaxota.study.grid import parse_grid
from jaxota.study.study import Study

OPTIONS = ("trials", "rounds", "snr_db", "snr_per", "dataset", "data_dir", "init_scale")


def known(name: str) -> Any:
    """The experiment of a name."""
    from jaxota.figures import EXPERIMENTS, THEORY

    every = EXPERIMENTS | THEORY
    if name not in every:
        raise InputError(f"unknown experiment {name!r}: choose from {', '.join(every)}")
    return every[name]


def of_sweep(asked: str, **given: Any) -> dict[str, Any]:
    """The spec of a sweep: of an experiment, or of a study in a file, `my_study.py:NAME`."""
    place, _, name = asked.partition(":")
    if not place.endswith(".py"):
        return {"experiment": asked, **given}
    try:
        source = Path(place).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{place} cannot be read: {error}") from None
    return {"file": str(Path(place).resolve()), "source": source, "name": name, **given}


def experiment(spec: dict[str, Any]) -> Any:
    """The experiment that a spec names, as it was asked for."""
    return known(spec["experiment"]).configured(spec.get("options", {}))


def study(spec: dict[str, Any]) -> Study:
    """The study of a sweep."""
    options, seed = dict(spec.get("options", {})), spec.get("seed")
    if "source" in spec:
        base = from_file(spec["file"], spec["source"], spec["name"])
        if isinstance(base, Experiment):
            raise InputError(f"{base.name} is an experiment, not a study: jaxota run runs it")
        for option in options.keys() - {"trials", "rounds"}:
            name = option.replace("_", "-")
            raise InputError(f"--{name} is not for a study from a file: use --set {option}=...")
        base = base.replace(**options, **({} if seed is None else {"key": seed}))
    else:
        chosen = experiment(spec)
        if not hasattr(chosen, "study"):
            raise InputError(f"{chosen.name} sets what it sweeps itself: jaxota run {chosen.name}")
        base = chosen.study(seed or 0)
    if spec.get("algorithms"):
        base = base.replace(algorithms=_some(base.algorithms, spec["algorithms"]))
        if base.reference not in base.algorithms:
            base = base.replace(reference=next(iter(base.algorithms)))
    base = base.replace(over=base.over * parse_grid(spec.get("set", [])))
    keep = spec.get("keep")
    return base if keep is None else base.replace(keep=keep)


def sweep_job(
    spec: dict[str, Any], memory: int | None = None, most_programs: int | None = None
) -> StudyJob:
    """What the driver runs of a sweep; more programs than so many are refused."""
    return StudyJob(study(spec), memory, most_programs)


def job(spec: dict[str, Any], memory: int | None = None) -> Any:
    """What the driver runs of a sweep, or of an experiment."""
    if spec.get("run"):
        return experiment(spec).job(spec["seed"], memory)
    return sweep_job(spec, memory)


def command(spec: dict[str, Any]) -> str:
    """What is typed to have it made again; where data and a user's file lie is left out."""
    words = ["jaxota", "run" if spec.get("run") else "sweep"]
    if "source" in spec:
        words.append(":".join(filter(None, (Path(spec["file"]).name, spec["name"]))))
    else:
        words.append(spec["experiment"])
    options = {k: v for k, v in spec.get("options", {}).items() if k != "data_dir"}
    if spec.get("run") and "source" in spec:  # options that have no flag of their own are set
        sets = [f"{k}={v}" for k, v in options.items() if k not in OPTIONS]
        words += [word for each in sets for word in ("--set", each)]
        options = {k: v for k, v in options.items() if k in OPTIONS}
    several = ",".join(spec.get("algorithms") or ())
    given = {**options, "seed": spec.get("seed"), "algorithms": several, "keep": spec.get("keep")}
    words += [word for each in spec.get("set", []) for word in ("--set", each)]
    for name, value in given.items():
        if value not in (None, "") and (name, value) != ("seed", 0):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


@functools.lru_cache(maxsize=4)
def remembered(words: str) -> Any:
    """The job of a spec, given as JSON: made once in a process, as programs are part of it."""
    return job(json.loads(words))


def _some(algorithms: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Those of the given names; what is in brackets in a label need not be typed."""
    short = {label.split(" (")[0].lower(): label for label in algorithms}
    for name in names:
        if name not in algorithms and name.lower() not in short:
            raise InputError(
                f"--algorithms must be of {', '.join(algorithms)}, with commas, got {name!r}"
            )
    wanted = [name if name in algorithms else short[name.lower()] for name in names]
    return {label: algorithms[label] for label in dict.fromkeys(wanted)}


def from_file(path: str, source: str, name: str) -> Study | Experiment:
    """The study or experiment of a name in a user's file; without a name, the only one."""
    module = types.ModuleType(f"jaxota_study_{Path(path).stem}")  # none that is there already
    module.__file__ = path
    sys.modules[module.__name__] = module  # dataclasses look for it there
    folder = str(Path(path).parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        exec(compile(source, path, "exec"), vars(module))
    except InputError:
        raise
    except Exception as error:
        line = _validate.first_line(error)
        raise InputError(f"{path} fails: {type(error).__name__}: {line}") from None
    own = {k: v for k, v in vars(module).items() if not k.startswith("_")}
    studies = {k: v for k, v in own.items() if isinstance(v, Study | Experiment)}
    if not name and len(studies) == 1:
        name = next(iter(studies))
    if name not in studies:
        there = (
            f"it holds {', '.join(studies)}"
            if studies
            else "it holds neither a jo.Study nor a jo.experiment"
        )
        raise InputError(f"{path} must hold a study {name or 'to run'}: {there}")
    found = studies[name]
    return found if found.name != "study" else dataclasses.replace(found, name=name)
