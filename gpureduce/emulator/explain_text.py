"""Explanations as text pictures for the terminal, 80 columns wide by default."""

from __future__ import annotations

import textwrap
from pathlib import PurePosixPath

from gpureduce.core import registry
from gpureduce.emulator.counts import (
    Access,
    Change,
    Counted,
    CountsPair,
    Line,
    Step,
    StrategyCounts,
)
from gpureduce.text import counted, plural, size_text

WIDTH = 80
_SHADES = " ░▒▓█"
_LANE_NAMES = "0123456789abcdefghijklmnopqrstuv"
_MANY_STEPS = 24


def explanation(what: StrategyCounts, width: int = WIDTH) -> str:
    """Active lanes by step, counts by line, bank conflicts, bytes, and later launches."""
    parts = [_head(what, width), _activity(what, width), _lines(what, width)]
    worst = what.worst_line
    if worst and worst.access and worst.conflicts:
        parts.append(_banks(worst, worst.access))
    parts.append(_bytes(what))
    parts.append(_sums(what, width))
    if what.shape is None and what.strategy in registry.STRATEGIES:
        parts.append(f"Step by step: gpureduce replay {what.strategy}")
    return "\n\n".join(part for part in parts if part)


def _wrapped(text: str, width: int) -> str:
    return textwrap.fill(text, width, subsequent_indent="  ", break_on_hyphens=False)


def comparison(both: CountsPair, width: int = WIDTH) -> str:
    """The counters that differ between two strategies, below the second one's lesson."""
    before, after = both.before, both.after
    lines = [
        _wrapped(f"{before.strategy} → {after.strategy}: {both.lesson}", width),
        f"{before.size} {before.input_dtype} added up in {before.dtype}, "
        f"{before.block} threads a block, {before.counted}",
        "",
    ]
    widest = max([len(c.name) for c in both.changes], default=0)
    left = max([len(f"{c.before:,}") for c in both.changes] + [len(before.strategy)])
    right = max([len(f"{c.after:,}") for c in both.changes] + [len(after.strategy)])
    if both.changes:
        lines.append(f"{'':{widest}}  {before.strategy:>{left}}  {after.strategy:>{right}}")
    for change in both.changes:
        row = f"{change.name:{widest}}  {change.before:>{left},}  {change.after:>{right},}"
        lines.append(f"{row}  {factor(change)}")
    if not both.changes:
        lines.append("Nothing that is counted here differs.")
    lines += ["", *(_wrapped(f"{one.strategy}: {_quality(one)}", width) for one in (before, after))]
    return "\n".join(lines)


def factor(change: Change) -> str:
    """The ratio of two counts as text, such as "2x less"."""
    if not change.after:
        return "gone"
    if not change.before:
        return "new"
    less = change.after < change.before
    few, many = sorted((change.before, change.after))
    ratio = many / few
    if ratio < 1.1:
        return f"{(1 - few / many if less else ratio - 1):.2%} {'less' if less else 'more'}"
    times = f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"
    return f"{times}x {'less' if less else 'more'}"


def _quality(what: Counted) -> str:
    said = []
    if what.active_lanes is not None:
        said.append(f"{what.active_lanes:.1f} of 32 lanes active per memory instruction")
    if what.conflicts_per_access is not None:
        said.append(f"{what.conflicts_per_access:.2f} conflicts per shared access")
    if what.bytes_used_share is not None:
        said.append(f"{100 * what.bytes_used_share:.0f}% of the bytes moved are used")
    return ", ".join(said)


def _head(what: StrategyCounts, width: int) -> str:
    first = what.kernels[0]
    how = f"counted from {first.ran} of them" if first.sampled else "all of them counted"
    said = (
        f"{what.size} {what.input_dtype} added up in {what.dtype}; "
        f"{counted(what.grid, 'block')} of {what.block} threads ({how})"
    )
    lesson = _wrapped(f"{what.strategy}: {what.lesson}", width)
    return f"{lesson}\n{_wrapped(said, width)}"


def _cells(mask: int, cells: int) -> str:
    """A warp as `cells` characters. A darker character has more active lanes."""
    lanes = 32 // cells
    text = ""
    for cell in range(cells):
        active = (mask >> (cell * lanes) & ((1 << lanes) - 1)).bit_count()
        text += _SHADES[-(-active * (len(_SHADES) - 1) // lanes)]
    return text


def _what_happens(step: Step, room: int) -> str:
    """The counts of a step in order of importance, as many as fit in `room`."""
    words = []
    loads, stores = (step.counters[f"shared_{kind}_wavefronts"] for kind in ("load", "store"))
    if loads or stores:
        words.append(f"{_short(loads + stores)} {plural(loads + stores, 'wavefront')}")
    if step.conflicts:
        words.append(f"{step.conflicts / (loads + stores):.0%} conflicts")
    if step.counters["shuffles"]:
        shuffles = step.counters["shuffles"]
        words.append(f"{_short(shuffles)} {plural(shuffles, 'shuffle')}")
    if step.bytes_moved:
        words.append(f"{size_text(step.bytes_moved)} global")
    while len(", ".join(words)) > room:
        words.pop()
    return ", ".join(words)


def _warp_text(masks: list[int], cells: int) -> str:
    """Warps side by side, separated by bars if each has more than one character."""
    return ("|" if cells > 1 else "").join(_cells(mask, cells) for mask in masks)


def _activity(what: StrategyCounts, width: int) -> str:
    shown = what.steps[:_MANY_STEPS]
    warps = max((len(step.lanes) for step in shown), default=0)
    if not warps:
        return ""
    cells = next((c for c in (8, 4, 2) if warps * (c + 1) <= width // 2), 1)
    drawn = max(len(_warp_text([0] * warps, cells)), len("warps 0 to 99"))
    many = f"a character is {32 // cells} lanes" if cells > 1 else "a character is a warp"
    lines = [
        f"Active lanes of block 0, step by step: {many}, {_SHADES[1]} few to {_SHADES[-1]} all",
        f"step   {f'warps 0 to {warps - 1}':{drawn}}  whole grid",
    ]
    for step in shown:
        masks = [*step.lanes, *[0] * (warps - len(step.lanes))]
        happens = _what_happens(step, width - drawn - 9)
        text = _warp_text(masks, cells) + "|"
        lines.append(f"{step.name:<5} |{text:{drawn + 2}}{happens}".rstrip())
    if len(what.steps) > len(shown):
        lines.append(f"... and {counted(len(what.steps) - len(shown), 'more step')}")
    return "\n".join(lines)


def _lines(what: StrategyCounts, width: int) -> str:
    """A row for each line of the source. Lines of the strategy's own file have no file name."""
    own = next(
        (line.file for line in what.lines if PurePosixPath(line.file).stem == what.strategy), ""
    )
    places = [str(line.line) if line.file == own else line.place for line in what.lines]
    columns: list[tuple[str, list[str]]] = [
        ("warp instr", [_short(_instructions(line)) for line in what.lines]),
        ("lanes", [_short(line.active_lanes) for line in what.lines]),
        ("wavefronts", [_short(line.wavefronts) for line in what.lines]),
        ("conflicts", [_short(line.conflicts) for line in what.lines]),
        ("sectors", [_short(line.sectors) for line in what.lines]),
    ]
    columns = [(head, cells) for head, cells in columns if any(cells)]
    heads = " ".join(head for head, _ in columns)
    wide = max(map(len, ["line", *places]))
    text = width - wide - 2 - len(heads) - 1
    rows = [f"{'line':{wide}}  {_shortened(own, text):{text}} {heads}"]
    for number, (line, place) in enumerate(zip(what.lines, places, strict=True)):
        cells = " ".join(f"{cells[number]:>{len(head)}}" for head, cells in columns)
        rows.append(f"{place:>{wide}}  {_shortened(line.text, text):{text}} {cells}".rstrip())
    return "\n".join(rows)


def _instructions(line: Line) -> int:
    names = ("warp_barriers", "shuffles", "fences")
    more = line.details["block_barrier_instructions"] + line.details["atomic_instructions"]
    return line.memory_instructions + sum(line.counters[name] for name in names) + more


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _short(number: float | None) -> str:
    """A number in few characters; empty for 0 and None."""
    if not number:
        return ""
    if isinstance(number, float):
        return f"{number:.1f}"
    return f"{number:,}" if number < 10**6 else f"{number / 1e6:,.2f} M"


def _banks(line: Line, access: Access) -> str:
    """A picture with one character per bank and wavefront: the served lane, in base 32."""
    served = wavefront_table(access)
    lines = [
        f"Worst bank conflict, {line.place}: "
        f"{counted(access.wavefronts, 'wavefront')} where {access.ideal} would do",
        "wavefront  banks 0 to 31; a letter is a lane (0 to 9, a to v)",
    ]
    for number, row in enumerate(served):
        lanes = ("·" if lane is None else _LANE_NAMES[lane] for lane in row)
        lines.append(f"{number + 1:>9}  {''.join(lanes)}")
    return "\n".join(lines)


def _paired(access: Access, distance: int) -> bool:
    """Whether lanes `distance` apart share words: a wavefront then serves twice as many lanes."""
    pairs = [(access.offsets[lane], access.offsets[lane ^ distance]) for lane in range(32)]
    return all(None in pair or pair[0] == pair[1] for pair in pairs)


def wavefront_table(access: Access) -> list[list[int | None]]:
    """For each wavefront, the lane that each of the 32 banks serves (the first, if several)."""
    words = max(access.size // 4, 1)
    together = 32 // words
    if words > 1 and not access.store and (_paired(access, 1) or _paired(access, 2)):
        together *= 2
    table: list[list[int | None]] = []
    for first in range(0, 32, together):
        banks: list[dict[int, int]] = [{} for _ in range(32)]
        for lane in range(first, first + together):
            offset = access.offsets[lane]
            if offset is not None:
                for word in range(offset // 4, offset // 4 + words):
                    banks[word % 32].setdefault(word, lane)
        for turn in range(max(map(len, banks))):
            table.append([[*bank.values(), *[None] * 32][turn] for bank in banks])
    return table


def traffic(what: StrategyCounts) -> list[tuple[str, int, int]]:
    """Loads and stores of global memory, if there are any: the bytes used, and the bytes moved."""
    rows = []
    for kind in ("load", "store"):
        if moved := 32 * what.counters[f"global_{kind}_sectors"]:
            rows.append((f"{kind}s", what._of(f"global_{kind}_bytes_used"), moved))
    return rows


def _bytes(what: StrategyCounts) -> str:
    rows = traffic(what)
    if not rows:
        return ""
    most = max(moved for _, _, moved in rows)
    lines = ["Global memory: bytes used (█) of bytes moved (░)"]
    for kind, used, moved in rows:
        whole = max(round(40 * moved / most), 1)
        full = max(round(whole * used / moved), 1)
        bar = "█" * full + "░" * (whole - full)
        said = f"{size_text(used)} of {size_text(moved)}, {used / moved:.0%}"
        lines.append(f"{kind:7} {bar:40} {said}")
    return "\n".join(lines)


def _sums(what: StrategyCounts, width: int) -> str:
    nouns = ("block barrier", "warp barrier", "shuffle", "atomic", "fence")
    counts = [(what.counters[f"{noun.replace(' ', '_')}s"], noun) for noun in nouns]
    words = [counted(n, noun) for n, noun in counts if n]
    parts = (_quality(what), ", ".join(words), *_contention(what))
    return "\n".join(_wrapped(part, width) for part in parts if part)


def _contention(what: StrategyCounts) -> list[str]:
    return [
        f"Atomics in {memory} memory: {found.atomics:,} to {counted(found.addresses, 'address')}, "
        f"{found.most:,} to one of them; lanes with one address take {counted(found.turns, 'turn')}"
        for memory, found in what.contention.items()
        if found.atomics
    ]
