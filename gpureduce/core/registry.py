"""The strategies and dtypes of csrc/strategies.def, csrc/steps.def and csrc/dtypes.def."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpureduce import _host
from gpureduce.core.checks import flag, no_such, shown

COMPLEX = ("complex64", "complex128")
FINISHES = ("host", "relaunch", "single")


@dataclass(frozen=True)
class Strategy:
    """One way to add up an array; see `strategies`.

    Attributes
    ----------
    name, aliases
        The values for `strategy=`.
    kind
        ``"kernel"``, ``"broken"`` (wrong on purpose), ``"library"``, ``"host"``, ``"everywhere"``
        (a kernel, and a processor's version of it), ``"choice"`` (picks another strategy),
        ``"axis"`` (a kernel for sums along an axis), ``"segments"`` (a step of `segment_sum`),
        ``"keys"`` (a lesson on sums by segment) or ``"scan"`` (a lesson on running sums).
    lesson
        Its lesson, in one sentence.
    dtypes
        The dtypes of elements that it takes.
    needs
        Required hardware features.
    deterministic
        Whether floats give the same bits in every run.
    finishes
        The values for `finish=`; the first is the default.
    index, traits
        Its place and its flags in the compiled registry.
    pair
        The types of elements and sums of a user's kernel that has no others.

    Examples
    --------
    >>> import gpureduce
    >>> by_name = {s.name: s for s in gpureduce.strategies()}
    >>> by_name["sequential"].aliases, by_name["redux"].needs
    (('sum_seq', 'reduce2'), 'compute capability 8.0')
    """

    name: str
    kind: str
    lesson: str
    aliases: tuple[str, ...]
    dtypes: tuple[str, ...]
    needs: str
    deterministic: bool
    finishes: tuple[str, ...]
    index: int = field(repr=False)
    traits: int = field(repr=False)
    pair: tuple[int, int] | None = field(default=None, repr=False)

    def __hash__(self) -> int:
        return self.index  # strategies are part of the keys of cached plans

    @property
    def broken(self) -> bool:
        """Whether it is wrong on purpose."""
        return self.kind == "broken"

    @property
    def launches_kernels(self) -> bool:
        """Whether it is a kernel of ours, with a block and a grid to choose."""
        return self.kind in ("kernel", "broken", "everywhere", "axis", "segments", "keys", "scan")

    @property
    def axis(self) -> int | None:
        """The axis of a C array that a kernel of kind ``"axis"`` is for; else None.

        Those for rows and columns count as for rows.
        """
        if self.kind != "axis":
            return None
        return 1 if self.traits & _host.ROWS else 0


class UserKernel:
    """A kernel that a user writes: the base of `gpureduce.Kernel`."""

    @property
    def name(self) -> str:
        """The kernel's name."""
        raise NotImplementedError

    traits: int

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes of elements that it takes; the first is the default."""
        raise NotImplementedError

    @property
    def finishes(self) -> tuple[str, ...]:
        """The values for `finish=`; the first is the default."""
        raise NotImplementedError

    def call(self, function: str, *arguments: Any, **named: Any) -> Any:
        """Calls a public function with this kernel in place of a strategy's name."""
        raise NotImplementedError


_ROWS = _host.dtypes()
NUMBERS = {row[0]: number for number, row in enumerate(_ROWS)}  # C's numbers of all dtypes
# By the name of a real dtype: its load type.
DTYPES = {name: load for name, load, *_ in _ROWS if name not in COMPLEX}


def _needs(kind: str, traits: int, capability: int) -> str:
    if kind == "library":
        return "an NVIDIA GPU"
    wanted = []
    if capability:
        wanted.append(f"compute capability {capability // 10}.{capability % 10}")
    if traits & _host.COOPERATIVE:
        wanted.append("cooperative launch")
    return ", ".join(wanted)


def _finishes(kind: str, traits: int) -> tuple[str, ...]:
    finishes_itself = traits & _host.FINISHES or kind in ("axis", "segments", "keys", "scan")
    return ("single",) if finishes_itself else ("relaunch", "host")


def _read() -> dict[str, Strategy]:
    every = tuple(DTYPES)
    numbers = (*every, *COMPLEX)
    dtypes = {
        "all": every,
        "complex": numbers,
        "any": numbers,
        "floats": numbers,
        "int32": ("int32", "uint32"),
        "plain": ("float32", "float64"),
        "wide": ("int32", "uint32", "int64", "uint64", "float32", "float64"),
    }
    rows = {}
    for index, row in enumerate(_host.strategies()):
        name, kind, aliases, lesson, kinds, traits, capability = row
        rows[name] = Strategy(
            name=name,
            kind=kind,
            lesson=lesson,
            aliases=tuple(aliases.split()),
            dtypes=numbers if kind in ("axis", "segments") else dtypes[kinds],
            needs=_needs(kind, traits, capability),
            deterministic=not traits & _host.UNORDERED and kind != "broken",
            finishes=_finishes(kind, traits),
            index=index,
            traits=traits,
        )
    return rows


STRATEGIES = _read()
IN_GROUPS = ("auto", "exact", "fast", "cpu", "numpy")  # for sums by segment and running sums
_INTERNAL = ("axis", "segments")  # kinds of kernels
_NAMES = {row.index: row.name for row in STRATEGIES.values()}
_BY_ALIAS = {alias: row for row in STRATEGIES.values() for alias in row.aliases}


def strategies(internal: bool = False) -> list[Strategy]:
    """The strategies to name, in lesson order; the broken ones come last.

    With `internal`, the kernels that sums along an axis and by segment launch.

    >>> import gpureduce
    >>> [s.name for s in gpureduce.strategies()][:3]
    ['global_tree', 'interleaved_mod', 'interleaved_idx']
    """
    wanted = flag("internal", internal)
    return [row for row in STRATEGIES.values() if (row.kind in _INTERNAL) == wanted]


def is_known(name: str) -> bool:
    """Whether there is a strategy with this name or alias."""
    return name in STRATEGIES or name in _BY_ALIAS


def name_at(index: int) -> str:
    """The name of the strategy at this place in the compiled registry."""
    return _NAMES[index]


def added(
    name: str, dtypes: tuple[str, ...], finishes: tuple[str, ...], index: int, traits: int,
    pair: tuple[int, int] | None, kind: str = "kernel",
) -> Strategy:  # fmt: skip
    """The strategy of a user's kernel, which was added to the compiled registry of this process."""
    _NAMES[index] = name
    return Strategy(
        name=name,
        kind=kind,
        lesson="a kernel of yours",
        aliases=(),
        dtypes=dtypes,
        needs="",
        deterministic=not traits & _host.UNORDERED,
        finishes=finishes,
        index=index,
        traits=traits,
        pair=pair,
    )


def check_allowed(strategy: Strategy, allow_broken: bool) -> None:
    """Raises for a strategy that is wrong on purpose, unless `allow_broken`."""
    if strategy.broken and not flag("allow_broken", allow_broken):
        raise ValueError(
            f"{strategy.name} is wrong on purpose: pass allow_broken=True (--allow-broken) to run "
            f"it. {strategy.lesson}"
        )


def finish_number(finish: str | None) -> int:
    """The engine's number of a finish; 0 for the strategy's default."""
    return (None, *FINISHES).index(finish)


def find(name: object, argument: str = "strategy") -> Strategy:
    """The strategy with this name or alias. `argument` is the parameter's name in errors."""
    if isinstance(name, Strategy):
        return name
    if isinstance(name, UserKernel):
        raise TypeError(
            f"{argument} cannot be a kernel of your own here; sum, cumsum, explain, races, check "
            "and benchmark take one"
        )
    if not isinstance(name, str):
        raise TypeError(f"{argument} must be the name of a strategy, not {shown(name)}")
    row = STRATEGIES.get(name) or _BY_ALIAS.get(name)
    if row is None and (name.endswith(".cu") or "__global__" in name):
        raise ValueError(
            f"{argument} names a strategy, not {shown(name)}: make a kernel of it first, by "
            "gpureduce.kernel(...), and pass that"
        )
    if row is None:
        raise ValueError(no_such("strategy", name, (*STRATEGIES, *_BY_ALIAS), _listed()))
    return row


def chosen(name: object, kind: str, what: str) -> Strategy:
    """The strategy for `what`, such as "running sums": a lesson's are of this kind."""
    found = None if isinstance(name, str) and not is_known(name) else find(name)
    if found and (found.name in IN_GROUPS or found.kind == kind):
        return found
    names = (*IN_GROUPS, *lessons(kind))
    if found is None:
        raise ValueError(no_such("strategy", name, names, f"{', '.join(names)} for {what}"))
    if found.kind == "segments":
        raise ValueError(f"{found.name} is an internal step of segment_sum: leave strategy out")
    raise ValueError(f"{found.name} cannot make {what}: use one of {', '.join(names)}")


def lessons(kind: str) -> tuple[str, ...]:
    """The names of the strategies of this kind."""
    return tuple(row.name for row in STRATEGIES.values() if row.kind == kind)


def _listed() -> str:
    """The strategies to name, for an error."""
    kinds = {"keys": "by segment: ", "scan": "running sums: ", "broken": "wrong on purpose: "}
    names: dict[str, list[str]] = {}
    for row in strategies():
        names.setdefault(kinds.get(row.kind, ""), []).append(row.name)
    return "; ".join(kind + ", ".join(found) for kind, found in names.items())
