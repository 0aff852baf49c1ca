"""`replay`: what every thread of a kernel does, step by step. No GPU is needed."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import html
import itertools
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from gpureduce.core import arrays, bounds, dtypes, exact, output_files, registry, sources
from gpureduce.core.checks import finite, listed, named_keywords, shown, whole
from gpureduce.core.dtypes import Array
from gpureduce.core.groups import Segments, few_segments
from gpureduce.core.schedule import Schedule
from gpureduce.emulator import provenance, replay_picture, replay_steps, replay_text
from gpureduce.emulator.counts import Access
from gpureduce.emulator.explain import find_whole
from gpureduce.emulator.explain_text import wavefront_table
from gpureduce.emulator.picture import Picture, film
from gpureduce.emulator.race import Race
from gpureduce.emulator.races import named_schedule, value_of
from gpureduce.emulator.replay_steps import KINDS, MOST_N, Recording, ReplayData, end_at_fault
from gpureduce.text import plain
from gpureduce.version import VERSION

SCHEMA = 1
BLOCK = 64  # threads
_MOST_FRAMES = 200
_FOLDER = Path(__file__).parent / "page"
_MOST_BYTES = 1_000_000  # of a page
# Orders of threads that are tried for a race. With another seed than 0, lanes and warps go from the
# last to the first.
_ORDERS = ("lockstep", "lockstep 1", "forward", "reverse", *(f"random {i}" for i in range(8)))


class Call(NamedTuple):
    """The arguments of `replay` for one kernel."""

    n: Any = None
    dtype: Any = None
    block: Any = None
    grid: Any = None
    schedule: str | Schedule = "lockstep"
    values: Any = None
    segment_ids: Any = None
    num_segments: Any = None
    segments: Segments | None = None  # from these, checked
    digits: int = 9  # without values, elements are 1 to this number, again and again


@dataclass(frozen=True)
class Replay(ReplayData):
    """One run of a kernel, step by step; see `replay`.

    Its attributes are the fields of the JSON, which docs/replay.md describes. `value` is None if
    the kernel failed; of running sums, `value` and `expected` are the last one; of sums by segment
    they are tuples. `beside` is the replay of another kernel, or of the other order of a race.

    >>> import gpureduce
    >>> shown = gpureduce.replay("sequential", n=64, block=32)
    >>> print(shown.sentences[0])
    Line 16: lanes 0 to 31 of block 0 read in[0..31], 4 sectors of 32 bytes, all used.
    """

    beside: Replay | None = None

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """Each step in words."""
        return tuple(replay_text.sentence(self, step) for step in self.steps)

    def __str__(self) -> str:
        return replay_text.summary(self)

    def __repr__(self) -> str:
        return f"<replay of {self.strategy}: n={self.n}, {len(self.steps)} steps>"

    def _repr_html_(self) -> str:
        page = html.escape(self.page())
        style = "width:100%;height:780px;border:1px solid #8884;border-radius:6px"
        frame = f'<iframe srcdoc="{page}" style="{style}" title="{self.strategy}">'
        # where frames are removed, this is left
        return f"{frame}Trust this notebook, or run it, to watch the {repr(self)[1:-1]}.</iframe>"

    def as_dict(self) -> dict[str, Any]:
        """The data behind the page; docs/replay.md describes it."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(ReplayData)}
        data = {"schema": SCHEMA, "gpureduce": VERSION, **own} | {
            "right": self.is_right, "summary": replay_text.summary(self), "counters": self.counters,
            "arrays": [vars(one) for one in self.arrays],
            "parts": [
                {"runs": one.runs(), "repeated": one.repeated(), "foreign": one.foreign}
                for one in self.parts
            ],
            "steps": [
                {name: value for name, value in fields.items() if value not in (None, (), "", {})}
                for step, sentence in zip(self.steps, self.sentences, strict=True)
                for fields in [{**vars(step), "queue": self._queue(step), "sentence": sentence}]
            ],
        }  # fmt: skip
        if self.beside:
            data["beside"] = self.beside.as_dict()
        return cast(dict[str, Any], plain(data, 2**53))  # JavaScript would round larger ones

    def _queue(self, step: replay_steps.Step) -> Any:
        """A bank conflict: for each wavefront, the lane that each bank serves."""
        if step.is_late or not any(name.endswith("_conflicts") for name in step.counts):
            return None
        base = self.arrays[step.array or 0].base
        at = {lane: base + at for lane, at in zip(step.lanes, step.offsets, strict=True)}
        places = tuple(at.get(lane) for lane in range(32))
        return wavefront_table(Access(places, step.bytes, 0, 0, step.kind == "store"))

    def to_json(self) -> str:
        """The data as JSON."""
        return json.dumps(self.as_dict(), separators=(",", ":"), allow_nan=False)

    def page(self) -> str:
        """The page that shows it, which needs no other file and no network."""
        title = self.strategy
        if self.beside:
            title += ": both orders of a race" if self.race else f" and {self.beside.strategy}"
        data = base64.b64encode(gzip.compress(self.to_json().encode(), 6, mtime=0)).decode()
        inside = {one.name: one.read_text("utf-8") for one in _FOLDER.glob("*.*")}
        inside |= {"TITLE": html.escape(title), "DATA": data}
        made = re.sub("{{(.+)}}", lambda found: inside[found[1]], inside["page.html"])
        if len(made) > _MOST_BYTES:
            n = self.n * _MOST_BYTES // len(made)
            raise ValueError(
                f"a page may have 1 MB, and this one has {len(made) / 1e6:.1f} MB: use "
                f"n={2 ** (n.bit_length() - 1):,} with block={max(self.block, 256)}"
            )
        return made

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the page: an ``.html`` file.

        It replaces an earlier page of a replay. It replaces another file with `force`.
        """
        output_files.write(_target(path, ".html", force), self.page(), "replay")

    def frame(self, step: int) -> Picture:
        """The state after one step as a picture: ``svg()`` of it, or ``plot()``."""
        return replay_picture.draw(self, whole("step", step, 0, len(self.steps) - 1))

    def film(
        self, path: str | os.PathLike[str], seconds: float = 0.4, steps: Any = None, *,
        force: bool = False,
    ) -> None:  # fmt: skip
        """Write an animation: a ``.gif`` file, by matplotlib and Pillow.

        It shows each of `steps` for `seconds`: by default all steps, or 200 of them at most, evenly
        spread. It replaces a file that is there with `force`.
        """
        target, count = _target(path, ".gif", force), len(self.steps)
        if steps is None:
            steps = np.linspace(0, count - 1, min(count, _MOST_FRAMES)).astype(int)
        pictures = [self.frame(step) for step in listed("steps", steps)]
        if not pictures:
            raise ValueError("a film needs at least one step: steps is empty")
        if not 0.01 <= finite("seconds", seconds) <= 655:  # as GIF can hold
            raise ValueError(f"seconds must be from 0.01 to 655, not {shown(seconds)}")
        film(pictures, target, seconds)


def _target(path: str | os.PathLike[str], suffix: str, force: bool) -> Path:
    """The file to write, checked as those of commands are."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path must be the name of a file, not {shown(path)}")
    output_files.checked(os.fspath(path), "path", "replay", (suffix,), force=force)
    return Path(path)


@named_keywords
def replay(
    strategy: str | registry.UserKernel,
    n: int | None = None,
    *,
    block: int | None = None,
    grid: int | None = None,
    dtype: npt.DTypeLike | None = None,
    beside: str | registry.UserKernel | None = None,
    schedule: str | Schedule | None = None,
    values: npt.ArrayLike | None = None,
    segment_ids: npt.ArrayLike | None = None,
    num_segments: int | None = None,
    race: Race | None = None,
) -> Replay:
    """Run a kernel on the emulator and show what every thread does, step by step.

    A step is what a warp does at once: an access to memory, a shuffle or another collective, a
    barrier. Other lines of the kernel are not stopped at. Each value is shown with the elements
    that it contains: the kernel runs again with other elements, which tell them.

    Parameters
    ----------
    strategy
        A name or alias out of `strategies`, the ones that are wrong on purpose included; or a
        kernel of yours, out of `kernel`.
    n
        How many elements to add up; by default 256, at most 16,384.
    block, grid
        As in `sum`. By default blocks have 64 threads.
    dtype
        The elements' dtype: by default int32, float32 for `exact`, or the own dtype of a kernel of
        yours. Numbers of four bytes and more are added up in it, as in the lectures.
    beside
        Another strategy or kernel, which runs with the same elements. The page shows both.
    schedule
        The order of threads: by default ``"lockstep"``, in which the lanes of a warp go together,
        or another one of `races`.
    values
        The elements, in place of `n`: by default the digits 1 to 9 again and again. They must be
        numbers of the dtype; without `dtype`, floats are float32.
    segment_ids, num_segments
        For sums by segment, as in `explain`. Without ids, the kernels from ``"key_atomic"`` to
        ``"key_fixed"`` add up segments of 1, 3, 5, ... neighbouring elements.
    race
        A race out of `races`: shows its two accesses in both orders, side by side, and what each
        makes of the sum, where orders of threads are found for both. The launch and the elements
        are by default those of `races`.

    Returns
    -------
    Replay
        It shows itself in a notebook. ``save("page.html")`` writes a page.

    Raises
    ------
    ValueError
        The run has too many steps to show, or an argument is not for this strategy.
    TypeError
        An argument has the wrong type, or `values` has masked or missing entries.

    Examples
    --------
    >>> import gpureduce
    >>> shown = gpureduce.replay("interleaved_idx", n=256, block=64, beside="sequential")
    >>> shown.counters["shared_load_conflicts"], shown.beside.counters["shared_load_conflicts"]
    (50, 0)
    >>> found = gpureduce.races("missing_barrier")
    >>> both = gpureduce.replay("missing_barrier", race=found.races[0])
    >>> both.is_right, both.beside.is_right
    (False, True)
    """
    if isinstance(n, str):
        raise TypeError(f"n must be a whole number, not {shown(n)}; beside= takes a second kernel")
    call = Call(n, dtype, block, grid, schedule or "lockstep", values, segment_ids, num_segments)
    if segment_ids is None and num_segments is not None:
        raise ValueError("num_segments needs segment_ids: pass them, or leave num_segments out")
    if race is not None:
        if not isinstance(race, Race):
            raise TypeError(f"race must be one of gpureduce.races(...).races, not {shown(race)}")
        own = {"beside": beside, "schedule": schedule, "segment_ids": segment_ids}
        for name, given in own.items():
            if given is not None:
                raise ValueError(f"a race is shown with its own size and launch: leave {name} out")
        return _in_both_orders(strategy, race, call)
    first = _replayed(strategy, "strategy", call)
    if beside is None:
        return first
    ids, count = (first.segment_ids, len(first.expected)) if first.segment_ids else (None, None)
    elements = np.array(first.elements, first.dtype)
    call = call._replace(n=None, values=elements, segment_ids=ids, num_segments=count)
    return dataclasses.replace(first, beside=_replayed(beside, "beside", call))


def _in_both_orders(strategy: Any, race: Race, call: Call) -> Replay:
    names = ["dtype", "block", "grid"] + ["n"] * (call.values is None)
    own = {name: getattr(race, name) for name in names if getattr(call, name) is None}
    call = call._replace(**own, digits=2)  # the elements of `races`
    found: dict[bool, Replay] = {}  # by whether the first access comes first
    for order in _ORDERS:
        shown = _replayed(strategy, "strategy", call._replace(schedule=order))
        if marks := _nearest(shown, race):
            text = f"nothing orders the two: {race.remedy}"
            shown = dataclasses.replace(shown, marks=marks, race=text, start=min(marks))
            found.setdefault(marks[0] < marks[1], shown)
        if len(found) == 2:
            return dataclasses.replace(found[True], beside=found[False])
    if not found:
        raise ValueError(
            f"no step of {strategy} makes this race, which `races` found with n={race.n} and "
            f"block={race.block}"
        )
    return next(iter(found.values()))


def _nearest(shown: ReplayData, race: Race) -> tuple[int, int] | None:
    """The steps of the two accesses: the nearest ones that no barrier orders."""
    every = replay_steps.accesses(shown.steps, shown.arrays)
    first, second = (
        every[side.block, side.thread, side.place.line, KINDS.get(side.kind, ""), race.address]
        for side in race.sides
    )
    block = race.sides[0].block if race.sides[0].block == race.sides[1].block else None
    for a, b in sorted(itertools.product(first, second), key=lambda pair: abs(pair[0] - pair[1])):
        between = shown.steps[min(a, b) : max(a, b)]
        kinds = {one.kind for one in between if one.block == block}
        if between and kinds.isdisjoint(replay_steps.BARRIERS):
            return a, b
    return None


def _replayed(strategy: Any, argument: str, call: Call) -> Replay:
    if isinstance(strategy, registry.UserKernel) and call.segment_ids is None:
        return cast(Replay, strategy.call("replay", call))
    usual = "float32" if np.asarray(call.values).dtype.kind == "f" else None
    dtype = getattr(call.values, "dtype", usual) if call.dtype is None else call.dtype
    by_key = call.segment_ids is not None or registry.find(strategy, argument).kind == "keys"
    chosen, dtype = find_whole(strategy, argument, dtype, by_key)
    call = call._replace(dtype=dtype, block=BLOCK if call.block is None else call.block)
    call = _with_segments(call) if by_key else call
    record = partial(replay_steps.record, chosen, segments=call.segments)
    return build(chosen.name, call, record, sources.files())


def _with_segments(call: Call) -> Call:
    """The call with the elements and the segments of a sum by segment."""
    ids = call.segment_ids
    if ids is not None and call.values is None:
        if call.n is not None:
            raise ValueError("segment_ids set the number of elements: leave n out")
        call = call._replace(n=np.size(ids))
    elements = _elements(call)
    ids = np.sqrt(np.arange(len(elements))).astype(int) if ids is None else ids
    segments = few_segments(ids, call.num_segments, elements, MOST_N)
    return call._replace(n=None, values=elements, segments=segments)


def build(
    kernel: str, call: Call, record: Callable[..., Iterable[Recording]],
    texts: Mapping[str, Sequence[str]], input_name: str = "in", pair: tuple[int, int] | None = None,
) -> Replay:  # fmt: skip
    """The replay of a kernel, with the dtype and the launch of `call`.

    `record` runs it once for each array of elements.
    """
    array = _elements(call)
    wanted = dtypes.in_itself(array.dtype, pair)
    conversion = dtypes.convert_for(array.dtype, wanted, pair)
    if conversion.is_complex:
        raise TypeError("complex numbers are summed as two real sums: pass the dtype of a part")
    sums = dtypes.number_of(conversion.acc)
    if sums.itemsize == conversion.result.itemsize:  # signed
        sums = conversion.result
    name, order = named_schedule(call.schedule)
    types = {**replay_steps.TYPES, input_name: array.dtype.name}
    types |= replay_steps.KEY_TYPES if call.segments else {}
    elements = [array, *provenance.codes(len(array), array.dtype, sums)]
    run, *_ = runs = [*record(elements, wanted, call.block, call.grid, order)]
    steps, arrays, parts, unknown = replay_steps.read(runs, elements, sums, types)
    start = end_at_fault(steps, arrays, run.fault, next(iter(texts))) if run.fault else 0
    if not steps:
        raise ValueError(f"{kernel} has no step to show: {run.fault or 'it does nothing'}")
    files = {step.file for step in steps}
    result, segments, value = conversion.result, call.segments, None
    every = [array] if not segments else [array[segments.ids == k] for k in range(segments.size)]
    right: Any = tuple(dtypes.quietly(exact.right_sum, one, result) for one in every)
    bound: Any = tuple(_bound(kernel, one, result, sums) for one in every)
    if not segments:
        (right,), (bound,) = right, bound
    if not run.fault and segments:
        value = tuple(np.frombuffer(run.bits, result, len(every)).tolist())
    elif not run.fault:
        value = value_of(conversion, run.bits)
    ids = segments.ids.tolist() if segments else ()
    return Replay(
        kernel, len(array), array.dtype.name, run.launches[0][1], name, value, right, bound,
        run.fault, tuple(array.tolist()), tuple(ids), tuple(run.launches), tuple(arrays),
        tuple(steps), tuple(parts), unknown,
        {file: tuple(texts[file]) for file in texts if file in files}, start,
    )  # fmt: skip


def _bound(kernel: str, array: Array, result: Any, sums: Any) -> float:
    """The most by which rounding may change a sum."""
    size = sum(map(abs, array.tolist()))
    if kernel == "exact" or result.kind in "iub" or not math.isfinite(size):
        return 0.0
    rounded: float = 2.0 ** (1 - exact.precision(result)) * size  # at the end
    before = provenance.ROUNDED * len(array) * (kernel == "key_fixed")
    return before + bounds.in_any_order(len(array), sums.name, size) + rounded


def _elements(call: Call) -> Array:
    wanted = dtypes.named(call.dtype)
    if call.values is None:
        count = whole("n", 256 if call.n is None else call.n, 1, 2**63)
        array = (1 + np.arange(min(count, MOST_N)) % call.digits).astype(wanted)
    else:
        array = arrays.as_array(call.values)
        count = array.size
        if call.n is not None:
            raise ValueError("values set the number of elements: leave n out")
        if array.ndim != 1 or not count:
            raise ValueError(f"values must be a list of numbers, not {shown(call.values)}")
    if count > MOST_N:
        raise ValueError(
            f"a replay shows at most {MOST_N:,} elements, not {count:,}: use n=1,024 and block=256"
        )
    if array.dtype.kind not in "biuf" and array.dtype != wanted:
        raise TypeError(f"values must be numbers, not {array.dtype}")
    made = np.ascontiguousarray(dtypes.quietly(array.astype, wanted))
    same = np.asarray(wanted.kind not in "biu" or made.astype(array.dtype) == array)
    if not same.all():
        first = int(np.argmin(same))
        raise ValueError(
            f"values[{first}] is {array[first]}, which {wanted} cannot hold: pass another dtype"
        )
    return made
