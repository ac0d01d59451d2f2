"""Fields of parts by their names: found, told apart, and set."""

import dataclasses
import difflib
from typing import Any

from jaxota.errors import InputError


def paths(part: Any, path: str) -> dict[str, dataclasses.Field[Any] | None]:
    """Every field of a part and of the parts inside it, by its path; the part itself, too."""
    found: dict[str, dataclasses.Field[Any] | None] = {path: None}
    if dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            found |= paths(value, f"{path}.{field.name}")
            found[f"{path}.{field.name}"] = field
    return found


def find(name: str, known: dict[str, dataclasses.Field[Any] | None]) -> str:
    """The path that a name means; InputError with the nearest names, or with all it may mean."""
    meant = [path for path in known if path == name or path.endswith(f".{name}")]
    if name in meant or len(meant) == 1:
        return name if name in meant else meant[0]
    if meant:
        raise InputError(f"{name} must be spelled out, one of {', '.join(meant)}")
    short = sorted({path.rsplit(".", 1)[-1] for path, field in known.items() if field})
    near = difflib.get_close_matches(name.rsplit(".", 1)[-1], short, n=3, cutoff=0.5)
    raise InputError(
        f"no field is called {name}: "
        + (f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(short)}")
    )


def swept(field: dataclasses.Field[Any] | None) -> bool:
    """Whether new values are new numbers of one program: a traced field, not a part or a count."""
    return field is not None and "rank" in field.metadata


def has(part: Any, path: str) -> bool:
    """Whether a part has a field of this path; the first name of the path is the part's."""
    for name in path.split(".")[1:]:
        if not hasattr(part, name):
            return False
        part = getattr(part, name)
    return True


def put(part: Any, path: str, value: Any) -> Any:
    """`part` with a value at a path, None for a field's default if that is a part."""
    _, *names = path.split(".")
    if not names:
        return value
    inner = getattr(part, names[0])
    if len(names) > 1:
        return dataclasses.replace(part, **{names[0]: put(inner, ".".join(names), value)})
    default = next(f.default for f in dataclasses.fields(part) if f.name == names[0])
    if value is None and dataclasses.is_dataclass(default):
        value = default
    return dataclasses.replace(part, **{names[0]: value})
