"""Checks of single arguments. Errors name the argument, the allowed values and the given one."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import operator
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

import numpy as np

_P = ParamSpec("_P")
_R = TypeVar("_R")


def named_keywords(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function, whose error for an unknown keyword suggests the nearest one."""

    @functools.wraps(function)
    def call(*arguments: _P.args, **keywords: _P.kwargs) -> _R:
        try:
            return function(*arguments, **keywords)
        except TypeError:
            refuse_unknown(function.__name__, keywords, inspect.signature(function).parameters)
            raise

    return call


def refuse_unknown(function: str, keywords: Iterable[str], known: Collection[str]) -> None:
    """Raises TypeError for keywords that a function does not have."""
    for name in keywords:
        if name not in known:
            like = "axis" if name == "dim" and "axis" in known else nearest(name, known)
            hint = f"did you mean {like}?" if like else f"there are {', '.join(known)}"
            raise TypeError(
                f"{function}() got an unexpected keyword argument {name!r}: {hint}"
            ) from None


def shown(value: object) -> str:
    """Any value as one short line, for an error message."""
    if isinstance(value, int) and value.bit_length() > 128:
        return "a far larger number" if value > 0 else "a far smaller number"
    return " ".join(reprlib.repr(value).split())


def named_type(value: object) -> str:
    """The name of a value's type, with the library that it is from: "polars.DataFrame"."""
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    return kind.__name__ if library == "builtins" else f"{library}.{kind.__name__}"


def nearest(name: object, known: Iterable[str]) -> str:
    """The known names that are most like a misspelled one: "a or b", or "" if none is."""
    like, names = str(name)[:100].lower(), [*known]
    found = difflib.get_close_matches(like, names, 2, 0.7)
    return " or ".join(found or difflib.get_close_matches(like, names, 1, 0.66))


def no_such(what: str, name: object, known: Iterable[str], listed: str = "") -> str:
    """The message for a name that does not exist, with the nearest one and all that do."""
    names = [*known]
    like = nearest(name, names)
    meant = f": did you mean {like}? There" if like else "; there"
    return f"there is no {what} {shown(name)}{meant} are {listed or ', '.join(names)}"


def _bound(number: int) -> str:
    """The end of a range as text, as a power of two where possible: 2**63 - 1, not its digits."""
    power = (number + 1).bit_length() - 1
    if number < 2**20 or number not in (2**power, 2**power - 1):
        return str(number)
    return f"2**{power}" if number == 2**power else f"2**{power} - 1"


def whole(name: str, value: Any, least: int, most: int, *, step: int = 1) -> int:
    """Checks a whole number against a range. C would take the low bits of a larger one."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {shown(value)}") from None
    if not least <= number <= most or number % step:
        multiple = f"a multiple of {step} " if step > 1 else ""
        allowed = f"{multiple}from {least} to {_bound(most)}"
        raise ValueError(f"{name} must be {allowed}, not {shown(number)}")
    return number


def flag(name: str, value: Any) -> bool:
    """Checks a choice: any string would count as true."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, not {shown(value)}")
    return bool(value)


def finite(name: str, value: Any) -> float:
    """Converts a real number to float64 and checks that it is finite."""
    try:
        number = float(value) if not isinstance(value, (str, bytes, bytearray)) else None
    except TypeError:
        number = None
    except OverflowError:
        number = math.inf
    if number is None:
        raise TypeError(f"{name} must be a real number, not {shown(value)}")
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite in float64, not {shown(value)}")
    return number


def one_of(name: str, value: object, names: Collection[str]) -> str:
    """Checks that a value is one of `names`."""
    if isinstance(value, str) and value in names:
        return value
    raise ValueError(f"{name} must be one of {', '.join(names)}, not {shown(value)}")


def listed(name: str, value: Any) -> tuple[Any, ...]:
    """The values of a list. Refuses a string and a dict, which are lists of letters and keys."""
    try:
        if not isinstance(value, (str, bytes, Mapping)):
            return tuple(value)
    except TypeError:
        pass
    raise TypeError(f"{name} must be a list, such as [{shown(value)}], not {shown(value)}")


def no_stream(stream: object) -> None:
    """Raises if a stream is given for an array in host memory."""
    if stream is not None:
        raise ValueError("stream is for arrays on a GPU; this one is in host memory: leave it out")
