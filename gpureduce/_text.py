"""Explanations as pictures for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpureduce._explain import Change, Comparison, Counted, Explanation, Line, Step
    from gpureduce._trace import Access

WIDTH = 100
_SHADES = " ░▒▓█"
_LANE_NAMES = "0123456789abcdefghijklmnopqrstuv"
_MANY_STEPS = 24


def explanation(what: Explanation) -> str:
    """Who is active step by step, what each line costs, bank conflicts, and bytes."""
    parts = [_head(what), _activity(what), _lines(what)]
    worst = what.worst_line
    if worst and worst.access and worst.conflicts:
        parts.append(_banks(worst, worst.access))
    parts.append(_bytes(what))
    parts.append(_sums(what))
    return "\n\n".join(part for part in parts if part)


def comparison(both: Comparison) -> str:
    """What fell from one strategy to the next, and the sentence that says why."""
    before, after = both.before, both.after
    lines = [
        f"{before.strategy} → {after.strategy}: {both.lesson}",
        f"n = {before.n:,} {before.input_dtype} added up in {before.dtype}, "
        f"{before.block} threads a block, all launches",
        "",
    ]
    widest = max([len(c.name) for c in both.changes], default=0)
    width = max([len(f"{c.before:,}") for c in both.changes] + [len(before.strategy)])
    right = max([len(f"{c.after:,}") for c in both.changes] + [len(after.strategy)])
    if both.changes:
        lines.append(f"{'':{widest}}  {before.strategy:>{width}}  {after.strategy:>{right}}")
    for change in both.changes:
        row = f"{change.name:{widest}}  {change.before:>{width},}  {change.after:>{right},}"
        lines.append(f"{row}  {_factor(change)}")
    if not both.changes:
        lines.append("Nothing that is counted here differs.")
    lines += ["", _averages(before), _averages(after)]
    return "\n".join(lines)


def _factor(change: Change) -> str:
    if not change.after:
        return "gone"
    if not change.before:
        return "new"
    if change.after < change.before:
        return f"{change.before / change.after:.3g}x less"
    return f"{change.after / change.before:.3g}x more"


def _averages(what: Explanation) -> str:
    return f"{what.strategy}: {_quality(what)}"


def _quality(what: Counted) -> str:
    said = []
    if what.active_lanes is not None:
        said.append(f"{what.active_lanes:.1f} of 32 lanes active per memory instruction")
    if what.conflicts_per_access is not None:
        said.append(f"{what.conflicts_per_access:.2f} conflicts per shared access")
    if what.bytes_used_share is not None:
        said.append(f"{100 * what.bytes_used_share:.0f}% of the bytes moved are used")
    return ", ".join(said)


def _head(what: Explanation) -> str:
    first = what.kernels[0]
    counted = f"{first.ran} of them ran for all" if first.sampled else "all of them ran"
    return (
        f"{what.strategy}: {what.lesson}\n"
        f"n = {what.n:,} {what.input_dtype} added up in {what.dtype}; {what.grid:,} blocks of "
        f"{what.block} threads ({counted})"
    )


def _cells(mask: int, cells: int) -> str:
    """A warp as `cells` characters, each the darker the more of its lanes are active."""
    lanes = 32 // cells
    text = ""
    for cell in range(cells):
        active = (mask >> (cell * lanes) & ((1 << lanes) - 1)).bit_count()
        text += _SHADES[-(-active * (len(_SHADES) - 1) // lanes)]
    return text


def _what_happens(step: Step) -> str:
    told = []
    loads, stores = (
        step.counters["shared_load_wavefronts"],
        step.counters["shared_store_wavefronts"],
    )
    if loads or stores:
        told.append(f"{loads + stores:,} wavefronts")
    if step.conflicts:
        told.append(f"{step.conflicts:,} of them conflicts")
    if step.counters["shuffles"]:
        told.append(f"{step.counters['shuffles']:,} shuffles")
    if step.bytes_moved:
        told.append(f"{step.bytes_moved:,} B global")
    return ", ".join(told)


def _activity(what: Explanation) -> str:
    shown = what.steps[:_MANY_STEPS]
    warps = max((len(step.lanes) for step in shown), default=0)
    if not warps:
        return ""
    cells = 8 if warps <= 6 else 4 if warps <= 12 else 2 if warps <= 24 else 1
    each = 32 // cells
    width = max(warps * (cells + 1), 18)
    lines = [
        f"Who is active in block 0, step by step: a character is {each} lanes, {_SHADES[1]} few "
        f"to {_SHADES[-1]} all of them",
        f"step   {'warps 0 to ' + str(warps - 1):{width}} whole grid",
    ]
    for step in shown:
        lanes = (*step.lanes, *[0] * (warps - len(step.lanes)))
        warp_text = "|".join(_cells(mask, cells) for mask in lanes)
        lines.append(f"{step.name:<5} |{warp_text + '|':{width}}{_what_happens(step)}".rstrip())
    if len(what.steps) > len(shown):
        lines.append(f"... and {len(what.steps) - len(shown)} more steps")
    return "\n".join(lines)


def _lines(what: Explanation) -> str:
    places = [line.place for line in what.lines]
    wide = max(map(len, places), default=0)
    text = WIDTH - wide - 2 - 36
    head = f"{'line':{wide}}  {'':{text}} {'warp instr':>10} {'lanes':>5} {'wavefronts':>10} "
    rows = [head + f"{'sectors':>7}"]
    for line, place in zip(what.lines, places, strict=True):
        sectors = line.counters["global_load_sectors"] + line.counters["global_store_sectors"]
        rows.append(
            f"{place:{wide}}  {_shortened(line.text, text):{text}} "
            f"{_short(_instructions(line)):>10} {_short(line.active_lanes):>5} "
            f"{_short(line.wavefronts):>10} {_short(sectors):>7}"
            + (f"  {_short(line.conflicts)} conflicts" if line.conflicts else "")
        )
    return "\n".join(row.rstrip() for row in rows)


def _instructions(line: Line) -> int:
    names = ("warp_barriers", "shuffles", "fences")
    more = line.details["block_barrier_instructions"] + line.details["atomic_instructions"]
    return line.memory_instructions + sum(line.counters[name] for name in names) + more


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _short(number: float | None) -> str:
    """A number in few characters; nothing for none."""
    if not number:
        return ""
    if isinstance(number, float):
        return f"{number:.1f}"
    return f"{number:,}" if number < 10**7 else f"{number / 1e6:,.1f} M"


def _banks(line: Line, access: Access) -> str:
    """One character per bank and wavefront: the lane that is served, by its number in base 32."""
    served = wavefront_table(access)
    lines = [
        f"Worst bank conflict, {line.place}: {access.wavefronts} wavefronts for one warp "
        f"instruction of {access.size} bytes a lane, {access.ideal} would do",
        "wavefront  banks 0 to 31; a letter is a lane (0 to 9, a to v)",
    ]
    for number, row in enumerate(served):
        lines.append(f"{number + 1:>9}  {''.join(_lane_name(lane) for lane in row)}")
    return "\n".join(lines)


def _lane_name(lane: int | None) -> str:
    return "·" if lane is None else _LANE_NAMES[lane]


def _paired(access: Access, distance: int) -> bool:
    """Whether lanes that far apart want the same: then twice as many are served together."""
    pairs = [(access.offsets[lane], access.offsets[lane ^ distance]) for lane in range(32)]
    return all(None in pair or pair[0] == pair[1] for pair in pairs)


def wavefront_table(access: Access) -> list[list[int | None]]:
    """For each wavefront, which lane each of the 32 banks serves (the first of those it does)."""
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


def _bytes(what: Explanation) -> str:
    rows = []
    for kind in ("load", "store"):
        moved = 32 * what.counters[f"global_{kind}_sectors"]
        used = what._of(f"global_{kind}_bytes_used")
        if moved:
            rows.append((kind, used, moved))
    if not rows:
        return ""
    most = max(moved for _, _, moved in rows)
    lines = ["Global memory: bytes used (█) of bytes moved (░)"]
    for kind, used, moved in rows:
        whole = max(round(40 * moved / most), 1)
        full = max(round(whole * used / moved), 1)
        bar = "█" * full + "░" * (whole - full)
        lines.append(f"{kind + 's':7} {bar:40} {used:,} of {moved:,} B, {100 * used / moved:.0f}%")
    return "\n".join(lines)


def _sums(what: Explanation) -> str:
    names = ("block_barriers", "warp_barriers", "shuffles", "atomics", "fences")
    told = [f"{what.counters[name]:,} {name.replace('_', ' ')}" for name in names]
    told = [text for text, name in zip(told, names, strict=True) if what.counters[name]]
    return "\n".join(part for part in (_quality(what), ", ".join(told)) if part)
