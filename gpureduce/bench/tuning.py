"""`gpureduce.tune`: measures a GPU and makes its table for `fast`."""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpureduce.bench.benchmark import MOST_REPEATS
from gpureduce.bench.command import output_of, size
from gpureduce.bench.contenders.arrays import array_of, input_of, kernel, rotation
from gpureduce.bench.progress import progress
from gpureduce.bench.provenance import provenance
from gpureduce.core import devices, json_files, output_files
from gpureduce.core.checks import named_keywords, whole
from gpureduce.core.dtypes import Array, is_here, named
from gpureduce.core.fast_table import fast_table, use
from gpureduce.core.table_files import LARGEST, Choice, user_file
from gpureduce.errors import CudaError
from gpureduce.text import show, size_text, table

# The dtypes of each width, the most frequent width first.
_DTYPES = {
    4: ("float32", "int32"),
    8: ("float64", "int64"),
    2: ("float16", "bfloat16"),
    1: ("int8", "uint8"),
}
Times = dict[tuple[int, int], dict[Choice, float]]  # by width and size: microseconds
SIZES = tuple(2**power for power in range(12, 31))
# From this size the memory bandwidth is the limit and kernels differ by a percent or two. They are
# therefore measured in several alternating rounds, and small gains count.
LARGE = 2**24
_TURNS = 3
_MANY_COPIES = 256
_STEP = 4  # of the sizes in the first pass


def worth(nbytes: int) -> float:
    """The least relative gain for a switch from the next smaller size's choice. Saves rows."""
    return 0.003 if nbytes >= LARGE else 0.015


@dataclass(frozen=True)
class Tuned:
    """The result of `tune`.

    Attributes
    ----------
    card
        The device's name.
    choices
        The table that `fast` uses from now on.
    measured
        The microseconds of every candidate at every size.
    path
        Where the table was written. None for the emulator, unless a path was named.

    Examples
    --------
    >>> import gpureduce
    >>> tuned = gpureduce.tune("emulator", sizes=[1024], repeats=1)
    >>> tuned.card, len(tuned.choices), tuned.path
    ('gpureduce emulator', 4, None)
    """

    card: str
    choices: tuple[Choice, ...]
    measured: tuple[dict[str, Any], ...]
    path: Path | None


def candidates(nbytes: int) -> Iterator[Choice]:
    """The candidates to measure for an input of `nbytes`."""
    fewest = 512 if nbytes >= LARGE else 64
    for block in (64, 128, 256, 512, 1024):
        if nbytes <= 2**17:
            yield Choice(nbytes, 0, "one_block", block)
        if block >= 128 and 2**13 <= nbytes <= 2**20:
            yield Choice(nbytes, 0, "one_cluster", block, 8)
            yield Choice(nbytes, 0, "one_cluster", block, 16)
        if nbytes >= 2**16:
            for blocks in (1, 2, 4):
                if fewest <= block * blocks <= 1024:  # registers allow at most 1024 threads per SM
                    yield Choice(nbytes, 0, "tiles", block, 0, blocks)
        if block >= 256 and nbytes >= 2**22:
            yield Choice(nbytes, 0, "bulk_copy", block, 0, 1)


def _time(device: devices.Device, array: Array, choice: Choice, repeats: int) -> float | None:
    """Microseconds of one sum at a time; None if the GPU cannot run the candidate."""
    block, grid = choice.launch(array.nbytes, device.sms)
    # A run is the mean over all copies of the input. If there are many, few runs are enough.
    runs = min(repeats, 3) if rotation(device, array.nbytes)[0] > _MANY_COPIES else repeats
    try:
        made = kernel(input_of(array, device), choice.strategy, block, grid, apart=True)
        return statistics.median(made.timed(runs))
    except CudaError:
        return None


def _best(times: dict[Choice, float], before: tuple[Any, ...] | None) -> Choice:
    """The fastest choice, or the previous size's choice if that is nearly as fast."""
    best = min(times, key=lambda choice: times[choice])
    for choice, us in times.items():
        if _shape(choice) == before and us <= times[best] * (1 + worth(best.max_bytes)):
            return choice
    return best


def _shape(choice: Choice) -> tuple[Any, ...]:
    return choice.strategy, choice.block, choice.grid, choice.blocks_per_sm


def rows_from(best: dict[int, list[tuple[int, Choice]]]) -> tuple[Choice, ...]:
    """A table from the best choice at each size, per element width.

    The boundary between two measured sizes lies at their geometric mean.
    """
    rows = []
    for width, found in best.items():
        for i, (nbytes, choice) in enumerate(found):
            is_last = i + 1 == len(found)
            if is_last or _shape(found[i + 1][1]) != _shape(choice):
                most = LARGEST if is_last else math.isqrt(nbytes * found[i + 1][0])
                rows.append(Choice(most, width, *_shape(choice)))
    return tuple(rows)


def in_turn(sizes: Sequence[int]) -> list[list[tuple[int, int]]]:
    """The width and size of each group, in stages. The table is of use after each stage.

    First the widths, each with every fourth size and the largest. Then the sizes between, each with
    all widths.
    """
    sizes = sorted(set(sizes))
    coarse = sorted({*sizes[::_STEP], *sizes[-1:]})
    between = [nbytes for nbytes in sizes if nbytes not in coarse]
    return [[(width, nbytes) for nbytes in coarse] for width in _DTYPES] + [
        [(width, nbytes)] for nbytes in between for width in _DTYPES
    ]


def table_of(times: Times, before: Sequence[Choice] = ()) -> tuple[Choice, ...]:
    """The table that follows from the times. Widths without times keep their rows of `before`."""
    best: dict[int, list[tuple[int, Choice]]] = {}
    for width, nbytes in sorted(times):
        row = best.setdefault(width, [])
        row.append((nbytes, _best(times[width, nbytes], _shape(row[-1][1]) if row else None)))
    missing = _DTYPES.keys() - best.keys()
    kept = [c for c in before if c.element_bytes in missing or (missing and not c.element_bytes)]
    return (*rows_from(best), *kept)


def time_left(took: dict[int, float], sizes: Iterable[int]) -> str:
    """The expected time for groups of these sizes, such as "3 min left"; "" at the start.

    A group is expected to take as long as the one of the nearest size that was measured.
    """
    if not took:
        return ""
    seconds = sum(took[min(took, key=lambda one: abs(math.log(one / size)))] for size in sizes)
    return f", {seconds / 60:.0f} min left" if seconds > 90 else f", {seconds:.0f} s left"


@named_keywords
def tune(
    device: str | None = None,
    sizes: Sequence[int] = SIZES,
    repeats: int = 31,
    *,
    path: str | Path | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Tuned:
    """Find the fastest kernels of a card, and let `fast` use them from now on.

    Every candidate kernel, block and grid is timed at every size and element width, one sum at a
    time and with a cold L2 cache. This takes some minutes on a large card. The table is written
    again and again as it grows, so that an interruption loses little: first each width at a few
    sizes, then the sizes between. Without a GPU, `tune` raises `CudaError`.

    Parameters
    ----------
    device
        As in `gpureduce.sum`. The emulator is tuned only if it is named.
    sizes
        The sizes of the inputs, in bytes.
    repeats
        Runs of each candidate.
    path
        The file to write the table to, by default in the user's configuration folder. Later
        processes read it there. The table of the emulator is written only if `path` is named.
    progress
        Called with the number of groups that are done, the number of all, and the next one's name
        with the time left.

    Examples
    --------
    >>> import gpureduce
    >>> tuned = gpureduce.tune("emulator", sizes=[1024, 4096], repeats=1)
    >>> gpureduce.fast_table("emulator") == list(tuned.choices)
    True
    """
    chosen = devices.choose_device(device)
    if device is None and chosen.backend == "emulator":
        why = devices.build_info()["why"] or "GPUREDUCE_BACKEND is emulator"
        raise CudaError(
            f"tune measures a GPU, but {why}; device='emulator' tunes the emulator",
            "cudaErrorNoDevice",
        )
    repeats = whole("repeats", repeats, 1, MOST_REPEATS)
    stages = in_turn([whole("sizes", nbytes, 1, LARGEST) for nbytes in sizes])
    target = Path(path) if path else user_file(chosen.name) if chosen.backend == "cuda" else None
    before = fast_table(chosen.id)
    choices: tuple[Choice, ...] = ()
    times: Times = {}
    took: dict[int, float] = {}
    todo = [nbytes for stage in stages for _, nbytes in stage]
    try:
        for stage in stages:
            for width, nbytes in stage:
                if progress:
                    left = time_left(took, todo[len(times) :])
                    label = f"{width}-byte elements, {size_text(nbytes)}{left}"
                    progress(len(times), len(todo), label)
                start = time.monotonic()
                times[width, nbytes] = _group_times(chosen, _DTYPES[width], nbytes, repeats)
                took[nbytes] = time.monotonic() - start
            choices = table_of(times, before)
            use(choices, chosen)
            if target:
                save(choices, chosen, target)
        if progress:
            progress(len(times), len(todo), "")
    except KeyboardInterrupt as stop:
        if choices and target:
            raise KeyboardInterrupt(f"{target} has the table so far") from stop
        raise
    measured = (
        {**asdict(choice), "element_bytes": width, "us": us}
        for (width, _), found in sorted(times.items())
        for choice, us in found.items()
    )
    return Tuned(chosen.name, choices, tuple(measured), target)


def save(choices: Sequence[Choice], device: devices.Device, path: Path) -> None:
    """Writes a table with its provenance to a file."""
    kept = provenance("fast_table", device) | {"rows": [asdict(c) for c in choices]}
    json_files.write(path, kept)


def _group_times(
    device: devices.Device, dtypes: Iterable[str], nbytes: int, repeats: int
) -> dict[Choice, float]:
    """The time of each candidate: the mean over the dtypes of one width, which share a row."""
    times: dict[Choice, list[float]] = {}
    for dtype in filter(is_here, dtypes):
        array = array_of(dtype, max(1, nbytes // named(dtype).itemsize))
        turns: dict[Choice, list[float]] = {}
        for _ in range(_TURNS if nbytes >= LARGE else 1):
            for choice in candidates(nbytes):
                us = _time(device, array, choice, repeats)
                if us is not None:
                    turns.setdefault(choice, []).append(us)
        for choice, found in turns.items():
            times.setdefault(choice, []).append(statistics.median(found))
    return {choice: statistics.mean(found) for choice, found in times.items()}


def gains(device: devices.Device, sizes: Sequence[int], repeats: int) -> list[dict[str, Any]]:
    """What tuning would gain for float32: at each size the time of `fast`, and the best candidate.

    The time of `fast` is that of the table in use.
    """
    found = []
    for nbytes in sizes:
        times = _group_times(device, ["float32"], nbytes, repeats)
        best = min(times, key=lambda choice: times[choice])
        given = input_of(array_of("float32", nbytes // 4), device)
        fast = kernel(given, "fast", apart=True).timed(repeats)
        row = {"nbytes": nbytes, "fast_us": statistics.median(fast), "us": times[best]}
        found.append(row | {"strategy": best.strategy, "block": best.block})
    return found


def _as_table(choices: Sequence[Choice]) -> str:
    head = ["elements", "up to bytes", "kernel", "block", "grid"]
    rows = []
    for c in choices:
        grid = f"{c.blocks_per_sm} per SM" if c.blocks_per_sm else str(c.grid or "its own")
        most = "any" if c.max_bytes == LARGEST else str(c.max_bytes)
        width = size_text(c.element_bytes) if c.element_bytes else "any"
        rows.append([width, most, c.strategy, str(c.block), grid])
    return table(head, rows, right=(1, 3))


# The options of ``gpureduce tune``.
OPTIONS: dict[str, dict[str, Any]] = {
    "--device": {"help": "cuda, cuda:1 or emulator"},
    "--show": {"action": "store_true", "help": "only show the table in use"},
    "--output": {"metavar": "FILE.json", "help": "write the table here"},
    "--force": output_files.FORCE,
    "--sizes": {"nargs": "+", "type": size, "metavar": "BYTES", "default": SIZES,
                "help": "bytes of the inputs to try"},
    "--repeats": {"type": int, "default": 31, "help": "runs of each (default: 31)"},
}  # fmt: skip


def command(arguments: argparse.Namespace) -> None:
    """Runs ``gpureduce tune``."""
    if not arguments.show:
        path = output_of(arguments, "fast_table")
        made = tune(
            arguments.device, arguments.sizes, arguments.repeats, path=path, progress=progress()
        )
        kept = made.path or "not written: the emulator's table is of no use to later processes"
        print(f"{kept}\n", file=sys.stderr if arguments.json else sys.stdout)
    choices = fast_table(arguments.device)
    show([asdict(c) for c in choices], _as_table(choices), arguments.json)
