"""`gpureduce.tune`: measures a GPU and makes its table for `fast`."""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpureduce.bench.benchmark import MOST_REPEATS, array_of
from gpureduce.bench.contenders import rotation
from gpureduce.bench.provenance import provenance
from gpureduce.bench.report import progress, size
from gpureduce.core import devices, json_files, on_device, registry
from gpureduce.core.checks import whole
from gpureduce.core.dtypes import Array, convert, is_here, named
from gpureduce.core.fast_table import fast_table, use
from gpureduce.core.request import Request
from gpureduce.core.table_files import LARGEST, Choice, user_file
from gpureduce.errors import CudaError
from gpureduce.text import show_json, table

_DTYPES = {
    1: ("int8", "uint8"),
    2: ("float16", "bfloat16"),
    4: ("float32", "int32"),
    8: ("float64", "int64"),
}
SIZES = tuple(2**power for power in range(12, 31))
# From this size the memory bandwidth is the limit and kernels differ by a percent or two. They are
# therefore measured in several alternating rounds, and small gains count.
LARGE = 2**24
_TURNS = 3


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
    """Microseconds of one sum; None if the GPU cannot run the candidate."""
    conversion = convert(array.dtype, None)
    row = registry.find(choice.strategy)
    block, grid = choice.launch(array.nbytes, device.sms)
    copies, _ = rotation(device, array.nbytes)
    try:
        request = Request(row, conversion, block, grid)
        times, *_ = on_device.measure(request, array, device, copies=copies, repeats=repeats)
    except CudaError:
        return None
    return 1e3 * statistics.median(times)


def _best(times: dict[Choice, float], before: tuple[Any, ...] | None) -> Choice:
    """The fastest choice, or the previous size's choice if that is nearly as fast."""
    best = min(times, key=lambda choice: times[choice])
    for choice, time in times.items():
        if _shape(choice) == before and time <= times[best] * (1 + worth(best.max_bytes)):
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
        for (_, choices), (nbytes, _) in _runs(found):
            last = nbytes == found[-1][0]
            most = LARGEST if last else math.isqrt(nbytes * _next(found, nbytes))
            rows.append(Choice(most, width, *_shape(choices)))
    return tuple(rows)


def _runs(
    found: list[tuple[int, Choice]],
) -> Iterator[tuple[tuple[int, Choice], tuple[int, Choice]]]:
    """Yields the first and the last of consecutive sizes with the same choice."""
    for _, group in itertools.groupby(found, key=lambda pair: _shape(pair[1])):
        run = list(group)
        yield run[0], run[-1]


def _next(found: list[tuple[int, Choice]], nbytes: int) -> int:
    return min(size for size, _ in found if size > nbytes)


def tune(
    device: str | None = None,
    sizes: Sequence[int] = SIZES,
    repeats: int = 11,
    *,
    path: str | Path | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Tuned:
    """Find the fastest kernels of a card, and let `fast` use them from now on.

    Every candidate kernel, block and grid is timed at every size and element width, with a cold L2
    cache. This takes some minutes on a large card.

    Parameters
    ----------
    device
        As in `gpureduce.sum`.
    sizes
        The sizes of the inputs, in bytes.
    repeats
        Runs of each candidate.
    path
        The file to write the table to, by default in the user's configuration folder. Later
        processes read it there. The table of the emulator is written only if `path` is named.
    progress
        Called with the number of groups that are done, the number of all, and the next one's name.

    Examples
    --------
    >>> import gpureduce
    >>> tuned = gpureduce.tune("emulator", sizes=[1024, 4096], repeats=1)
    >>> gpureduce.fast_table("emulator") == list(tuned.choices)
    True
    """
    chosen = devices.choose_device(device)
    repeats = whole("repeats", repeats, 1, MOST_REPEATS)
    sizes = [whole("sizes", nbytes, 1, LARGEST) for nbytes in sizes]
    best: dict[int, list[tuple[int, Choice]]] = {}
    measured = []
    groups = [(width, nbytes) for width in _DTYPES for nbytes in sorted(sizes)]
    for done, (width, nbytes) in enumerate(groups):
        if progress:
            progress(done, len(groups), f"{width}-byte elements, {nbytes} bytes")
        times = _group_times(chosen, _DTYPES[width], nbytes, repeats)
        measured += [{**asdict(c), "element_bytes": width, "us": t} for c, t in times.items()]
        so_far = best.setdefault(width, [])
        so_far.append((nbytes, _best(times, _shape(so_far[-1][1]) if so_far else None)))
    if progress:
        progress(len(groups), len(groups), "")
    choices = rows_from(best)
    use(choices, chosen)
    target = Path(path) if path else user_file(chosen.name) if chosen.backend == "cuda" else None
    if target:
        save(choices, chosen, target)
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
                time = _time(device, array, choice, repeats)
                if time is not None:
                    turns.setdefault(choice, []).append(time)
        for choice, found in turns.items():
            times.setdefault(choice, []).append(statistics.median(found))
    return {choice: statistics.mean(found) for choice, found in times.items()}


def _as_table(choices: Sequence[Choice]) -> str:
    head = ["elements", "up to bytes", "kernel", "block", "grid"]
    rows = []
    for c in choices:
        grid = f"{c.blocks_per_sm} per SM" if c.blocks_per_sm else str(c.grid or "its own")
        most = "any" if c.max_bytes == LARGEST else str(c.max_bytes)
        width = f"{c.element_bytes} bytes" if c.element_bytes else "any"
        rows.append([width, most, c.strategy, str(c.block), grid])
    return table(head, rows, right=(1, 3))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gpureduce tune``."""
    parser.add_argument("--device", help="cuda, cuda:1 or emulator")
    parser.add_argument("--show", action="store_true", help="only show the table in use")
    parser.add_argument("--output", metavar="FILE", help="write the table here")
    parser.add_argument(
        "--sizes",
        nargs="+",
        type=size,
        metavar="BYTES",
        default=SIZES,
        help="bytes of the inputs to try",
    )
    parser.add_argument("--repeats", type=int, default=11, help="runs of each (default: 11)")


def command(arguments: argparse.Namespace) -> None:
    """Runs ``gpureduce tune``."""
    if not arguments.show:
        made = tune(
            arguments.device,
            arguments.sizes,
            arguments.repeats,
            path=arguments.output,
            progress=progress(),
        )
        kept = made.path or "not written: the emulator's table is of no use to later processes"
        print(f"{kept}\n", file=sys.stderr if arguments.json else sys.stdout)
    choices = fast_table(arguments.device)
    if arguments.json:
        show_json([asdict(c) for c in choices])
    else:
        print(_as_table(choices))
