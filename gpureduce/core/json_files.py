"""JSON files: tables of `fast`, calibrations and records. Readers check every field.

People edit and copy these files, and other programs write them. A wrong file raises a `ValueError`
whose message names the file and the field.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from gpureduce.core import text_files

T = TypeVar("T")

_NAMES = {
    int: "a whole number",
    float: "a finite number",
    str: "a string",
    bool: "true or false",
    type(None): "null",
    list: "a list",
    dict: "an object",
}
_LARGEST = 2**64  # larger numbers cannot be counts, and overflow when divided
_SHOWN = 60  # characters of a wrong value in a message


def read(path: Path) -> Any:
    """The JSON in a file."""
    with naming(path):
        try:
            return json.loads(text_files.read(path))
        except RecursionError:
            raise ValueError("its JSON is nested too deeply") from None
        except ValueError as error:
            raise ValueError(f"it is not JSON: {error}") from error


@functools.cache
def packaged(name: str) -> Any:
    """The JSON of a file that setup.py writes into the package."""
    return json.loads((Path(__file__).parents[1] / name).read_text("utf-8"))


def read_record(path: Path, kind: str, schema: int = 1, **kinds: Any) -> dict[str, Any]:
    """Reads a record of this kind and schema. Checks the types of the fields in `kinds`."""
    found = read(path)
    with naming(path):
        if not isinstance(found, dict) or found.get("kind") != kind:
            raise ValueError(f"it is not a record of kind {kind!r}")
        if type(found.get("schema")) is not int or found["schema"] != schema:
            raise ValueError(f"schema must be {schema}, not {shown(found.get('schema'))}")
        fields(found, **kinds)
    return found


def write(path: Path, value: object) -> None:
    """Writes a file, and its folder if there is none, as `text_files.write` does."""
    text = text_of(value)
    path.resolve().parent.mkdir(parents=True, exist_ok=True)
    text_files.write(path, text)


def text_of(value: object) -> str:
    """The text of a file. Each of a record's rows is a line."""
    if not isinstance(value, dict) or "rows" not in value:
        return json.dumps(value, indent=1) + "\n"
    rows = ",\n".join(json.dumps(row) for row in value["rows"])
    text = json.dumps({**value, "rows": []}, indent=1)
    return text.replace('"rows": []', f'"rows": [\n{rows}\n ]') + "\n"


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Puts the file's name in front of the message of a ValueError."""
    try:
        yield
    except ValueError as error:
        raise text_files.FileError(f"{path}: {error}") from error


def shown(value: object) -> str:
    """A wrong value as JSON for a message, cut to a readable length."""
    if isinstance(value, (list, dict)):
        return _NAMES[type(value)]
    try:
        text = json.dumps(value)
    except ValueError:  # an integer of thousands of digits
        return "a number that is too large"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def field(found: dict[str, Any], name: str, kind: Any) -> Any:
    """The value of a field of an object, checked by type."""
    if name not in found:
        raise ValueError(f"{name} is missing")
    return checked(found[name], kind, name)


def fields(found: dict[str, Any], **kinds: Any) -> None:
    """Checks the types of fields of an object. Other fields may have any value."""
    for name, kind in kinds.items():
        field(found, name, kind)


def row(columns: Sequence[str], values: Any, name: str) -> dict[str, Any]:
    """Converts a row of a record, a list in the order of `columns`, to an object."""
    _must_be(isinstance(values, list), list, values, name)
    if len(values) != len(columns):
        raise ValueError(f"{name} must have {len(columns)} values, not {len(values)}")
    return dict(zip(columns, values, strict=True))


def row_with_optional(columns: Sequence[str], values: Any, name: str) -> dict[str, Any]:
    """The same for rows that may lack the last column."""
    lacks_it = isinstance(values, list) and len(values) == len(columns) - 1
    return row(columns[:-1] if lacks_it else columns, values, name)


def checked(found: Any, kind: Any, name: str) -> Any:
    """Returns `found` if it has the type `kind`. Objects become instances of dataclasses.

    Knows int, float (finite), str, bool, None, list[X], tuple[X, ...], dict[str, X], unions,
    dataclasses and TypedDicts. `name` is the field's name in messages.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return found
    if origin in (typing.Union, types.UnionType):
        return _one_of(found, arguments, name)
    if origin in (list, tuple):
        _must_be(isinstance(found, list), list, found, name)
        return origin(checked(one, arguments[0], f"{name}[{i}]") for i, one in enumerate(found))
    if origin is dict:
        _must_be(isinstance(found, dict), dict, found, name)
        return {key: checked(one, arguments[1], f"{name}.{key}") for key, one in found.items()}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return made(kind, found, name)
    if typing.is_typeddict(kind):
        _must_be(isinstance(found, dict), dict, found, name)
        for key, hint in _hints(kind).items():
            if key in found:
                checked(found[key], hint, _joined(name, key))
            elif key in kind.__required_keys__:
                raise ValueError(f"{_joined(name, key)} is missing")
        return found
    if kind is float:
        _must_be(_is_finite(found), float, found, name)
        return float(found)
    _must_be(type(found) is kind, kind, found, name)
    if kind is int and abs(found) > _LARGEST:
        raise ValueError(f"{name or 'it'} must be a whole number of at most 64 bits")
    return found


def made(kind: type[T], found: Any, name: str) -> T:
    """Makes an instance of a dataclass from an object with exactly its fields."""
    if isinstance(found, kind):
        return found
    _must_be(isinstance(found, dict), dict, found, name)
    hints = _hints(typing.cast(Any, kind))
    values = {}
    for one in dataclasses.fields(kind):  # type: ignore[arg-type]
        if one.name in found:
            values[one.name] = checked(found[one.name], hints[one.name], _joined(name, one.name))
        elif one.default is one.default_factory is dataclasses.MISSING:
            raise ValueError(f"{_joined(name, one.name)} is missing")
    for key in found:
        if key not in hints:
            raise ValueError(f"{_joined(name, key)} is not a field: there are {', '.join(hints)}")
    return kind(**values)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _joined(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def _one_of(found: Any, kinds: tuple[Any, ...], name: str) -> Any:
    if found is None and type(None) in kinds:
        return None
    plain = [kind for kind in kinds if kind is not type(None)]
    for kind in plain[:-1]:
        try:
            return checked(found, kind, name)
        except ValueError:
            continue
    return checked(found, plain[-1], name)


def _is_finite(found: Any) -> bool:
    if type(found) not in (int, float):
        return False
    try:
        return math.isfinite(found)
    except OverflowError:
        return False


def _must_be(right: bool, kind: type, found: Any, name: str) -> None:
    if not right:
        raise ValueError(f"{name or 'it'} must be {_NAMES[kind]}, not {shown(found)}")
