"""Public calls of gpureduce with checks of their results, for the fuzzers that break them off."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

import gpureduce
from gpureduce.core import devices, fast_table
from producers import ByDLPack, ByInterface
from tools.fuzz import values
from tools.fuzz.outcomes import Failure

KERNELS = [s.name for s in gpureduce.strategies() if s.kind == "kernel"]
# They keep tickets, totals or flags in a workspace from call to call.
NEXT = ("exact", "last_block", "tiles", "bulk_copy", "cluster", "grid_sync", "fast")
_SLOW = {"global_tree", "interleaved_mod", "interleaved_idx", "sequential", "unroll_tail",
         "unroll_warp", "first_add", "first_add_unroll_warp"}  # fmt: skip
MOST = 1 << 19


@dataclass
class Call:
    """A public call. Calls of one `key` take about as long; `error` is the expected exception."""

    key: str
    run: Callable[[], Any]
    check: Callable[[Any], None]
    error: type[BaseException] | None = None


@functools.cache
def _data(name: str) -> tuple[Any, Any]:
    """Elements of a dtype, and the sums of their beginnings."""
    flat, parts = values.arena(name)
    times = -(-MOST // len(flat))
    whole = [np.cumsum(np.tile(part, times)) for part in parts]
    return np.tile(flat, times), whole


def _array(name: str, n: int) -> tuple[Any, complex | int]:
    data, sums = _data(name)
    totals = [int(part[n - 1]) if n else 0 for part in sums]
    return data[:n], complex(*totals) if len(totals) == 2 else totals[0]


def _checking(name: str, total: complex | int) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        wrong = values.difference(value, total, values.default_result(name))
        if wrong:
            raise Failure(wrong)

    return check


def _size(rng: Random, most: int) -> int:
    """Of all magnitudes."""
    return max(1, int(most ** rng.uniform(0.3, 1)))


def _cases_of(strategy: str) -> tuple[str, ...]:
    found = _backends_strategy(strategy).dtypes
    return tuple(name for name in values.NAMES if name in found and name not in values.COMPLEX)


def _backends_strategy(name: str) -> gpureduce.Strategy:
    return next(s for s in gpureduce.strategies() if s.name == name)


def emulated_sum(rng: Random, most: int, strategy: str | None = None) -> Call:
    """A kernel of the ladder, or a choice, on the emulator; in any order of threads."""
    name = strategy or rng.choice((*KERNELS, *NEXT, "auto"))
    dtypes = values.NAMES if name in ("fast", "auto", "exact") else _cases_of(name)
    dtype = rng.choice(dtypes)
    wanted = dtype if name == "redux" else None
    n = _size(rng, min(most, 60_000) if name in _SLOW else most)
    order = rng.choice(("forward", "forward", "reverse", "random", "lockstep"))
    if order == "lockstep":
        n = min(n, 20_000)
    array, total = _array(dtype, n)
    seed = rng.randrange(2**32)

    def run() -> Any:
        if order == "forward":
            return gpureduce.sum(array, name, wanted, device="emulator").value
        with gpureduce.emulator.schedule(order, seed):
            return gpureduce.sum(array, name, wanted, device="emulator").value

    if wanted:
        kind = values.dtype_of(wanted)

        def check(value: Any) -> None:
            if value.dtype != kind or value != values.expected(total, kind):
                raise Failure(f"wrong value: {value!r}, not {values.expected(total, kind)!r}")

        return Call(f"{name} {n.bit_length()} {order}", run, check)
    return Call(f"{name} {dtype} {n.bit_length()} {order}", run, _checking(dtype, total))


def host_sum(rng: Random, most: int) -> Call:
    name = rng.choice(("cpu", "exact", "auto", "numpy"))
    dtype = rng.choice([n for n in values.NAMES if name != "numpy" or n in values.INTEGERS])
    n = _size(rng, 4 * most)
    array, total = _array(dtype, min(n, MOST))
    timing = rng.random() < 0.5
    run = lambda: gpureduce.sum(array, name, timing=timing).value  # noqa: E731
    return Call(f"{name} {dtype} {n.bit_length()}", run, _checking(dtype, total))


def strided_sum(rng: Random, most: int) -> Call:
    """Elements that are packed first: strided or of the other byte order."""
    dtype = rng.choice([n for n in values.INTEGERS + values.FLOATS if n != "bfloat16"])
    array, _ = _array(dtype, _size(rng, most))
    name = rng.choice(("cpu", "exact", "fast", "cascade"))
    device = "emulator" if name in ("fast", "cascade") else rng.choice((None, "emulator"))
    device = None if name == "cpu" else device
    array = array[::3] if rng.random() < 0.5 else array.astype(array.dtype.newbyteorder(">"))
    total = int(array.astype(np.int64).sum())
    run = lambda: gpureduce.sum(array, name, device=device).value  # noqa: E731
    return Call(f"strided {name} {dtype} {array.size.bit_length()}", run, _checking(dtype, total))


def gpu_array(rng: Random, most: int) -> Call:
    dtype = rng.choice([n for n in values.NAMES if n != "bool"])
    array, total = _array(dtype, _size(rng, most))
    form = ByDLPack if dtype == "bfloat16" or rng.random() < 0.5 else ByInterface
    name = rng.choice(NEXT if dtype not in values.COMPLEX else ("fast", "exact"))
    made, timing = form(array), rng.random() < 0.5
    run = lambda: gpureduce.sum(made, name, device="emulator", timing=timing).value  # noqa: E731
    return Call(f"array {name} {dtype} {array.size.bit_length()}", run, _checking(dtype, total))


def axis_sum(rng: Random, most: int) -> Call:
    """Sums along an axis of an array in host memory; transposed or masked, too."""
    dtype = rng.choice([n for n in values.NAMES if n not in values.COMPLEX])
    array, _ = _array(dtype, min(_size(rng, 4 * most), MOST))
    columns = rng.choice((1, 2, 3, 16, 100, 3000))
    array = array[: array.size // columns * columns].reshape(-1, columns)
    array = array.T if rng.random() < 0.3 else array
    axis, masked = rng.randrange(2), rng.random() < 0.2
    name = rng.choice(("cpu", "exact", "auto"))
    mask = np.arange(array.shape[1]) % 3 > 0 if masked else True
    totals = np.sum(array.astype(np.float64), axis=axis, where=mask)
    kind = values.dtype_of(values.default_result(dtype))
    out = np.empty(totals.shape, kind) if rng.random() < 0.3 else None
    timing = rng.random() < 0.5

    def run() -> Any:
        return gpureduce.sum(array, name, axis=axis, where=mask, out=out, timing=timing).value

    def check(found: Any) -> None:
        with np.errstate(over="ignore"):
            expected = totals.astype(kind)
        if found.dtype != kind or not np.array_equal(found, expected):
            raise Failure(f"wrong sums along axis {axis} of {array.shape}, {name}, {dtype}")

    return Call(f"axis {name} {dtype} {array.size.bit_length()} {columns}", run, check)


def segment_sum(rng: Random, most: int) -> Call:
    """Sums by segment of an array in host memory, by ids or offsets; of vectors, too."""
    dtype = rng.choice([n for n in values.NAMES if n not in values.COMPLEX])
    array, _ = _array(dtype, min(_size(rng, 4 * most), MOST))
    array = array.reshape(-1, 2) if rng.random() < 0.3 and array.size % 2 == 0 else array
    count, by_offsets = rng.choice((1, 10, 1000, 50_000)), rng.random() < 0.3
    ids = np.random.default_rng(rng.randrange(2**32)).integers(0, count, len(array))
    ids = np.sort(ids) if by_offsets else ids
    totals = np.zeros((count, *array.shape[1:]))
    np.add.at(totals, ids, array.astype(np.float64))
    kind = values.dtype_of(values.default_result(dtype))
    out = np.empty(totals.shape, kind) if rng.random() < 0.3 else None
    segments = (
        {"offsets": np.searchsorted(ids, np.arange(count + 1))}
        if by_offsets
        else {"segment_ids": ids, "num_segments": count}
    )

    def run() -> Any:
        return gpureduce.segment_sum(array, **segments, out=out).value

    def check(found: Any) -> None:
        with np.errstate(over="ignore"):
            expected = totals.astype(kind)
        if found.dtype != kind or not np.array_equal(found, expected):
            raise Failure(f"wrong sums of {count} segments of {array.shape}, {dtype}")

    return Call(f"segments {dtype} {array.size.bit_length()} {count}", run, check)


def accumulate(rng: Random, most: int) -> Call:
    """All of an array, or nothing of it, is added."""
    dtype = rng.choice(values.FLOATS + values.COMPLEX)
    array, total = _array(dtype, _size(rng, most))
    on_device = rng.random() < 0.5
    made = ByDLPack(array) if on_device else array
    kept = gpureduce.Accumulator(dtype)

    def run() -> Any:
        before = kept.count
        if before % array.size:
            raise Failure(f"{before} elements were added, of arrays of {array.size}")
        kept.add(made, device="emulator" if on_device else None)
        if kept.count != before + array.size:
            raise Failure("not all elements were counted")
        fresh = gpureduce.Accumulator(dtype).add(made, device="emulator" if on_device else None)
        return pickle.loads(pickle.dumps(fresh)).value()

    return Call(f"accumulator {dtype} {array.size.bit_length()}", run, _checking(dtype, total))


def _same(key: str, run: Callable[[], Any], form: Callable[[Any], object] = str) -> Call:
    """A call that gives the same each time; the first, undisturbed time tells what."""

    def check(value: Any) -> None:
        if form(value) != _known(key, run, form):
            raise Failure(f"{key}: another result than before: {str(form(value))[:80]}")

    _known(key, run, form)
    return Call(key, run, check)


_results: dict[str, object] = {}


def _known(key: str, run: Callable[[], Any], form: Callable[[Any], object]) -> object:
    if key not in _results:
        _results[key] = form(run())
    return _results[key]


def _integral(rng: Random, most: int) -> Call:
    name = rng.choice(("auto", "cpu", "last_block", "cascade", "sequential"))
    power = rng.randint(4, 18 if name == "cpu" else 14)
    device = None if name in ("auto", "cpu") else "emulator"
    integrand = rng.choice([i.name for i in gpureduce.integrands()])
    words = {"a": 0.0, "b": 1.0, "n": 2**power, "strategy": name, "device": device}
    run = lambda: gpureduce.integrate(integrand, **words).value  # noqa: E731
    return _same(f"integrate {integrand} {name} {power}", run)


def _trapezoid(rng: Random, most: int) -> Call:
    n = 2 ** rng.randint(3, 16)
    array, _ = _array("float64", n)
    name = rng.choice(("auto", "cpu", "exact"))
    run = lambda: gpureduce.trapezoid(array, strategy=name).value  # noqa: E731
    return _same(f"trapezoid {name} {n}", run)


def _explain(rng: Random, most: int) -> Call:
    names = rng.sample(("cascade", "sequential", "last_block", "warp_shfl", "tiles", "cluster"), 2)
    n, sample = 2 ** rng.randint(8, 12), rng.random() < 0.5
    other = names[1] if rng.random() < 0.3 else None
    run = lambda: gpureduce.explain(names[0], other, n=n, sample=sample)  # noqa: E731
    return _same(f"explain {names[0]} {other} {n} {sample}", run)


def _races(rng: Random, most: int) -> Call:
    name = rng.choice(("missing_barrier", "cascade", "last_block", "sequential"))
    n, block = rng.choice((100, 200, 500)), rng.choice((32, 64))
    run = lambda: gpureduce.races(name, n=n, block=block)  # noqa: E731
    return _same(f"races {name} {n} {block}", run)


def _benchmark(rng: Random, most: int) -> Call:
    name, n = (
        rng.choice(("cascade", "last_block", "tiles", "exact", "cpu")),
        rng.choice((500, 9000)),
    )
    measure = rng.choice(("kernel", "host"))
    words = {"device": "emulator", "repeats": 1, "measure": [measure]}
    run = lambda: list(gpureduce.benchmark([name], [n], ["float32"], **words))  # noqa: E731
    shape = lambda rows: [(r.strategy, r.n, r.dtype, r.measure) for r in rows]  # noqa: E731
    return _same(f"benchmark {name} {n} {measure}", run, shape)


def _tune(rng: Random, most: int) -> Call:
    def run() -> Any:
        try:
            return gpureduce.tune("emulator", sizes=[2000], repeats=1).card
        finally:
            fast_table.use([], devices.choose_device("emulator"))

    return _same("tune", run)


def _limited(rng: Random, most: int) -> Call:
    """Too little memory on the device."""
    array, total = _array("float32", 50_000)

    def run() -> Any:
        gpureduce.free_scratch()
        with gpureduce.emulator.memory_limit(rng.choice((1, 5000, 100_000))):
            return gpureduce.sum(array, "cascade", device="emulator").value

    return Call("limited", run, _checking("float32", total), MemoryError)


def _wrong(rng: Random, most: int) -> Call:
    """Calls with an argument that cannot be."""
    array, _ = _array("float32", 1000)
    sum_ = functools.partial(gpureduce.sum, array, device="emulator")
    run, error = rng.choice(
        (
            (lambda: sum_("nothing"), ValueError),
            (lambda: sum_("cascade", block=33), ValueError),
            (lambda: sum_("cascade", dtype="int8"), TypeError),
            (lambda: sum_("missing_barrier"), ValueError),
            (lambda: gpureduce.sum(np.ma.array([1.0], mask=[True])), TypeError),
            (lambda: gpureduce.Accumulator("int32"), TypeError),
            (lambda: gpureduce.explain("cpu"), ValueError),
            (lambda: gpureduce.integrate("nothing"), ValueError),
        )
    )

    def check(value: Any) -> None:
        raise Failure(f"{value!r} in place of {error.__name__}")

    return Call("wrong", run, check, error)


_MAKERS: tuple[tuple[int, Callable[[Random, int], Call]], ...] = (
    (40, emulated_sum), (8, host_sum), (5, axis_sum), (5, segment_sum), (5, strided_sum),
    (8, gpu_array), (6, accumulate),
    (5, _integral), (2, _trapezoid), (4, _explain), (3, _races), (3, _benchmark), (1, _tune),
    (2, _limited), (3, _wrong),
)  # fmt: skip


def call_of(rng: Random, most: int) -> Call:
    (maker,) = rng.choices([m for _, m in _MAKERS], [w for w, _ in _MAKERS])
    return maker(rng, most)


def check_next(rng: Random, strategy: str | None = None) -> None:
    """The calls after one that was broken off must be right."""
    names = [strategy or "exact", *rng.sample(NEXT, 2)]
    for name in names:
        dtype = "int32" if name == "redux" else rng.choice(("float32", "int32"))
        n = rng.choice((1000, 4097, 20_000))
        array, total = _array(dtype, n)
        wanted = dtype if name == "redux" else None
        value = gpureduce.sum(array, name, wanted, device="emulator").value
        if value != total:
            raise Failure(f"the next call, {name} of {n} {dtype}, gave {value!r}, not {total}")


def check_memory() -> None:
    """All memory of the emulated device is given back when that is asked for."""
    gpureduce.free_scratch()
    lost = gpureduce.emulator.live_bytes()
    if lost:
        raise Failure(f"{lost} bytes of device memory are lost")
