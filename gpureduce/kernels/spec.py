"""What a spec for `gpureduce.grade` may hold: read from a file or a mapping, and checked."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpureduce.core import dtypes, registry, text_files
from gpureduce.core.checks import shown, whole
from gpureduce.emulator.counts import COUNTERS
from gpureduce.kernels import conditions, ladder, options

RULE = re.compile(
    r"(?P<name>\w+)\s*(?P<compare>==|<=|>=|<|>)\s*(?P<number>\d+(?:\.\d+)?)"
    r"(?:\s+(?P<unit>per block|per element|times the least))?"
)
_COUNTED = (*COUNTERS, "busiest_warp_requests")
_MOST_POINTS = 1e6
_SPEC_KEYS = ("title", "kernel", "dtypes", "launch", "blocks", "sizes", "assume", "n", "hints",
              "require")  # fmt: skip
_MOST_COUNTED = 2**18  # of the elements that are counted
_ROW_KEYS = ("rule", "points", "says", "given")
ASSUMING = "right assuming "
FORMS = (
    "right; right assuming powers_of_two; no races; compiles; lines <= 40; forbid NAME; use NAME; "
    "or a counter, as in shared_load_conflicts == 0, block_barriers <= 2 per block, "
    "global_load_sectors <= 1.01 times the least"
)


@dataclass(frozen=True)
class Rule:
    """A rule of a spec; `given` if the start file meets it, too."""

    rule: str
    points: float = 1.0
    says: str = ""
    given: bool = False


@dataclass(frozen=True)
class Spec:
    """A checked spec.

    `kernel` is the name of the kernel in a submission, `dtypes` None for the kernel's own, `launch`
    the options of `kernel` that it fixes, `assume` the condition under which a kernel may be right,
    `n` the elements that are counted, and `hints` whether a verdict says what to change.
    """

    title: str
    kernel: str
    dtypes: tuple[str, ...] | None
    launch: dict[str, str]
    assume: str
    n: int
    hints: bool
    rules: tuple[Rule, ...]


def given(spec: str | os.PathLike[str] | Mapping[str, Any]) -> Mapping[str, Any]:
    """A spec as a mapping; read from a file unless it is one."""
    if isinstance(spec, Mapping):
        return spec
    try:
        return tomllib.loads(text_files.read(spec))
    except RecursionError:
        raise ValueError(f"{spec} is not valid TOML: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{spec} is not valid TOML: {error}") from error


def checked(spec: str | os.PathLike[str] | Mapping[str, Any]) -> Spec:
    """A spec out of a file, or as a mapping. Raises an error that says what a spec may hold."""
    found = given(spec)
    try:
        return _checked(found)
    except (TypeError, ValueError) as error:
        where = "the spec" if isinstance(spec, Mapping) else spec
        raise ValueError(f"{where}: {error}") from None


def _checked(found: Mapping[str, Any]) -> Spec:
    for key in found:
        if key not in _SPEC_KEYS:
            raise ValueError(f"unknown key {key!r}; a spec may have {', '.join(_SPEC_KEYS)}")
    rules = tuple(map(_rule_of, _listed(found, "require", [])))
    if not rules:
        raise ValueError("it has no rule: add [[require]] with rule = 'right' and points")
    name = str(found.get("kernel", ""))
    if name and not name.isidentifier():
        raise ValueError(f"kernel must be the name of a kernel, not {shown(name)}")
    return Spec(
        str(found.get("title", "Grade")), name, _dtypes_of(found), _launch_of(found),
        _condition(found.get("assume", ""), "assume"),
        whole("n", found.get("n", ladder.N), 1, _MOST_COUNTED), _switch(found, "hints", True),
        rules,
    )  # fmt: skip


def _rule_of(row: Any) -> Rule:
    if not isinstance(row, Mapping):
        raise ValueError(f"a rule has {', '.join(_ROW_KEYS)}, and is not {shown(row)}")
    if "rule" not in row or not {*row} <= {*_ROW_KEYS}:
        keys = ", ".join(map(str, row))
        raise ValueError(f"there is a rule with {keys}; it has {', '.join(_ROW_KEYS)}")
    points = row.get("points", 1)
    is_number = isinstance(points, (int, float)) and not isinstance(points, bool)
    if not is_number or not 0 <= points <= _MOST_POINTS:
        raise ValueError(f"points are a number from 0 to {_MOST_POINTS:,.0f}, not {shown(points)}")
    rule = str(row["rule"])
    _check_rule(rule)
    return Rule(rule, float(points), str(row.get("says", "")), _switch(row, "given", False))


def _switch(found: Mapping[str, Any], key: str, usual: bool) -> bool:
    if not isinstance(value := found.get(key, usual), bool):
        raise ValueError(f"{key} must be true or false, not {shown(value)}")
    return value


def _condition(words: object, where: str) -> str:
    try:
        return str(conditions.parsed(words))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _launch_of(spec: Mapping[str, Any]) -> dict[str, str]:
    """The options of a launch that the spec fixes."""
    launch = spec.get("launch", {})
    if not isinstance(launch, Mapping):
        raise ValueError(f"launch must have options of a kernel, not {shown(launch)}")
    own = {key: spec[key] for key in conditions.KEYS if key in spec}
    return options.checked_options({**launch, **own})


def _listed(spec: Mapping[str, Any], key: str, usual: Any) -> Sequence[Any]:
    values = spec.get(key, usual)
    if not isinstance(values, (list, tuple)):
        raise ValueError(f"{key} must be a list, not {shown(values)}")
    return values


def _dtypes_of(spec: Mapping[str, Any]) -> tuple[str, ...] | None:
    if spec.get("dtypes", "own") == "own":
        return None
    names = _listed(spec, "dtypes", ())
    found = tuple(dtypes.name_of(dtypes.named(name)) for name in names)
    if not found:
        raise ValueError("dtypes must name at least one dtype, or be left out")
    for name in found:
        if name not in registry.DTYPES:
            raise ValueError(f"dtypes are among {', '.join(registry.DTYPES)}, not {name!r}")
    return found


def _check_rule(rule: str) -> None:
    found = RULE.fullmatch(rule)
    words = rule.split()
    if rule in ("right", "no races", "compiles"):
        return
    if rule.startswith(ASSUMING):
        _condition(rule.removeprefix(ASSUMING), f"it has the rule {rule!r}")
        return
    if len(words) == 2 and words[0] in ("forbid", "use"):
        return
    if found and found["name"] == "lines" and not found["unit"]:
        return
    if not found or found["name"] not in _COUNTED:
        near = difflib.get_close_matches(found["name"], ("lines", *_COUNTED), 1) if found else []
        hint = f"did you mean {near[0]}?" if near else f"a rule is one of: {FORMS}"
        raise ValueError(f"it has the rule {rule!r}; {hint}")
    if found["unit"] == "times the least" and found["name"] != "global_load_sectors":
        raise ValueError(f"no least is known in {rule!r}, only for global_load_sectors")
