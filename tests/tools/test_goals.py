"""Goals that records miss are named."""

from __future__ import annotations

import json

import goals
import pytest

from cases import MADE, timed_rows


def row(strategy, us, measure="kernel", dtype="float32", n=1024, producer="numpy", **more):
    way = "timing=False" * (measure == "call")
    case = {"measure": measure, "dtype": dtype, "n": n, "nbytes": 4 * n, "producer": producer,
            "offset": 0, "way": way, "peak_gb_s": None}  # fmt: skip
    return timed_rows(case | more, {strategy: us})[0]


ROWS = [
    row("fast", 2.0), row("cub", 3.0), row("fast", 4.0, n=4096), row("cub", 3.0, n=4096),
    row("fast", 2.5, offset=1),
    row("fast", 10.0, "call", producer="cupy"), row("cupy", 25.0, "call", producer="cupy"),
    row("fast", 8.0, "call", producer="torch"), row("torch", 12.0, "call", producer="torch"),
    row("auto", 5.0, "host"), row("numpy", 10.0, "host"), row("torch", 4.0, "host"),
    row("pinned copy", 1.0, "host"),
]  # fmt: skip
LIMITS = [
    row(name, us, "host")
    for name, us in (
        ("fast of pinned", 1.25),
        ("write to pinned", 0.4),
        ("write, pinned copy", 2.0),
    )
]


def large(percent, **more):
    """A kernel's row of 8 GiB."""
    rows = (row("fast", 1.0, n=2**31), row("cub", 1.2, n=2**31))
    return [one | {"percent_of_peak": percent, **more} for one in rows]


@pytest.mark.parametrize(
    ("rows", "device", "missed"),
    [
        (ROWS, "cuda", [
            "float32, 16 KiB: `fast` is 0.750 times as fast as cub; goal: 1.3",
            "float32, 4 KiB, call: `fast` is 1.500 times as fast as torch; goal: 1.54",
            "float32, 4 KiB, host array: `auto` is 0.800 times as fast as torch; goal: 0.95",
            "geometric mean of CUB's time divided by ours: 1.061; goal: 1.15",
            "float32, 4 KiB, start shifted by one element: 1.2500 times as long; goal: 1.03",
        ]),
        ([row("fast", 4.0, "apart"), row("cub", 3.0, "apart")], "cuda", [
            "float32, 4 KiB, one sum at a time: `fast` is 0.750 times as fast as cub; goal: 1"
        ]),
        (large(97.0, percent_of_ceiling=99.5), "cuda", []),
        (large(None), "cuda", []),  # a card without a known bandwidth
        (large(96.9, percent_of_ceiling=99.5), "cuda", [
            "float32, 8 GiB: 96.9% of peak; goal: 97% (99.5% of this GPU's read bandwidth)"
        ]),
        ([row("fast", 1.0), row("cub", 1.1)], "cuda", [
            "geometric mean of CUB's time divided by ours: 1.100; goal: 1.15"
        ]),
        ([row("fast", 1.0), row("cub", 1.2)], "cuda", []),
        ([row("cpu", 1.0, "host", n=2**24), row("numpy", 1.7, "host", n=2**24)], "cuda", []),
        ([row("cpu", 1.0, "host", n=2**24), row("numpy", 1.7, "host", n=2**24)], "emulator", [
            "float32, 64 MiB, host array: `cpu` is 1.700 times as fast as numpy; goal: 1.8"
        ]),
        ([row("cpu", 1.0, "host"), row("numpy", 1.0, "host")], "emulator", []),
        ([row("fast", 1.0, "call", n=2**17), row("torch", 1.0, "call", n=2**17)], "cuda", []),
        ([row("fast", 1.1, "host"), row("pinned copy", 1.0, "host")], "cuda", []),
        ([row("fast", 2.0, "host"), row("pinned copy", 1.0, "host")], "cuda", [
            "float32, 4 KiB, host array: `fast` is 0.500 times as fast as pinned copy; goal: "
            "0.85"
        ]),
        ([row("fast", 2.0, "host"), row("pinned copy", 1.0, "host"), *LIMITS], "cuda", [
            "float32, 4 KiB, host array: `fast` is 0.500 times as fast as pinned copy; goal: "
            "0.85 (speed relative to the pinned copy: summing a pinned array 0.800, "
            "writing to pinned memory 2.500, copying just written memory 0.625, "
            "writing and summing in turn 0.606)"
        ]),
    ],
)  # fmt: skip
def test_scoreboard(rows, device, missed):
    assert goals.of_scoreboard({"device": device, "rows": rows}) == missed


def of_exact(dtype, data, mib, exact, cub, of_bus=0.0, **more):
    """Rows whose bandwidth is a part of the card's: the peak follows from it."""
    nbytes = int(mib * 2**20)
    case = {"measure": "kernel", "dtype": dtype, "data": data, "n": nbytes, "nbytes": nbytes}
    case |= {"peak_gb_s": nbytes / exact / 1e3 / of_bus if of_bus else None}
    return timed_rows(case, {"cub": cub, "fast": cub, "exact": exact, **more})


def test_exact_sums_are_judged_by_the_worst_row():
    rows = [
        *of_exact("float32", "uniform", 16, 10.0, 9.8),
        *of_exact("float32", "bits", 16, 10.1, 9.7, cub_reproducible=12.0),
        *of_exact("float32", "bits", 8, 20.0, 9.0),  # smaller than what the goal is about
        *of_exact("float64", "bits", 1024, 20.0, 9.0, of_bus=0.45),
        *of_exact("float64", "uniform", 1024, 10.0, 9.8, of_bus=0.9),
        *of_exact("float64", "normal", 64, 10.0, 9.9, of_bus=0.95),
        *of_exact("float32", "normal", 0.5, 4.5, 2.0),
        *of_exact("float32", "normal", 1, 5.5, 2.0),
    ]
    missed, unknown = goals.judged({"rows": rows})
    others = "cub: 1.000, fast: 1.000, exact of uniform numbers: 0.900"
    bits = f"bits, 1024 MiB: 0.450; for comparison, {others}"
    assert missed == [
        "float32, speed relative to CUB's sum: 0.96; goal: 0.97 (bits, 16 MiB: 0.960)",
        f"float64 of random bits, share of peak bandwidth: 0.45; goal: 0.5 ({bits})",
        "small arrays: microseconds above fast: 3.5; goal: 3",
    ]
    assert unknown == ["float16 from 1 GiB, share of peak bandwidth",
                       "bfloat16 from 1 GiB, share of peak bandwidth",
                       "calls: microseconds above fast"]  # fmt: skip
    assert goals.of_exact({"rows": rows}) == missed
    slow = of_exact("float32", "bits", 16, 10.3, 10.5)
    (missed,) = goals.of_exact({"rows": [*rows[:4], *slow]})
    wanted = "time with the fastest data over the slowest: 0.971; goal: 0.98"
    assert missed == f"float32 of 16 MiB, {wanted}"


def test_one_thread():
    def rows(dtype, **ns):
        case = {"measure": "thread", "dtype": dtype, "data": "bits", "n": 64, "nbytes": 512}
        return timed_rows(case, {name: 0.064 * time for name, time in ns.items()})

    assert goals.of_exact({"rows": rows("float64", exact=1.3, fsum=1.3 * 19.6)}) == [
        "float64 bits, n = 64: 1.30 ns; goal: 1.2",
        "float64 bits, n = 64: 19.6 times fsum; goal: 20",
    ]  # fmt: skip
    good = rows("float64", exact=1.2, fsum=24.1, fsum_of_list=24.1)
    assert goals.of_exact({"rows": [*good, *rows("float16", exact=1.3, fsum=90.0)]}) == []


def of_case(segments, ids, ms, **more):
    case = {"measure": "segments", "n": 1 << 26, "segments": segments, "ids": ids, "columns": 1,
            "data": "normal", "index": "int64", **more}  # fmt: skip
    return timed_rows(case, {name: 1e3 * time for name, time in ms.items()})


GOOD = {"exact": 1.0, "torch index_add": 2.0, "torch deterministic": 30.0}


def test_sums_by_segment_worst_first():
    def missed(*rows):
        return goals.of_segments({"rows": [*rows]})

    good = of_case(10_000, "unsorted", GOOD)
    assert missed(*good) == []
    times = {"exact": 3.0, "torch index_add": 2.0, "torch deterministic": 5.0}
    far = {"exact": 1.0, "torch index_add": 2.0, "torch segment_reduce": 1.0}
    found = missed(*good, *of_case(1_000_000, "unsorted", times),
                   *of_case(16_000_000, "offsets", far))  # fmt: skip
    assert [text.partition(":")[0] for text in found] == [
        "16,000,000 segments, offsets", "1,000,000 segments, unsorted",
        "1,000,000 segments, unsorted"]  # fmt: skip
    assert "1 times the time of the best other call; goal: 0.02 (50.00 times off)" in found[0]
    assert (
        "takes 1.67 times as long; goal: 20" in found[1]
        and "1.5 times the time of index_add" in found[2]
    )
    for other in ({"dtype": "float16"}, {"n": 1000}):
        assert missed(*of_case(16_000_000, "offsets", far, **other)) == []


def of_scan(measure, us, axis=1, window=0, dtype="float32"):
    case = {"measure": measure, "dtype": dtype, "rows": 4, "columns": 8, "axis": axis,
            "window": window}  # fmt: skip
    return timed_rows(case, us)


ONE, TWO = goals.scan.ONE_THREAD, goals.scan.TWO_THREADS
ON_CARD = {"fast": 1.0, "exact": 1.2, "copy": 0.9, goals.scan.CUB: 1.1, "torch": 1.1}


@pytest.mark.parametrize(
    ("rows", "missed"),
    [
        (of_scan("whole", ON_CARD), []),
        (of_scan("matrices", ON_CARD | {"copy": 0.8, "torch": 0.1}),
         ["`fast` is 0.1 times as fast as torch; goal: 1", "fast as copy; goal: 0.85"]),
        (of_scan("matrices", ON_CARD | {"exact": 1.9}), ["is 0.526 times as fast as fast"]),
        (of_scan("matrices", ON_CARD | {"exact": 1.9}, dtype="float64"), []),
        (of_scan("unproven", {"exact": 20.0, "fast": 1.0}), []),
        (of_scan("unproven", {"exact": 21.0, "fast": 1.0}), ["as fast; goal: 0.05"]),
        (of_scan("matrices", {ONE: 1.2, TWO: 0.7, "NumPy": 1.0}), []),
        (of_scan("whole", {ONE: 1.5, TWO: 1.0, "NumPy": 1.0}, axis=0),
         [f"as {ONE}; goal: 1.6", "as NumPy; goal: 0.7"]),
        (of_scan("matrices", {ONE: 1.2, TWO: 0.7, "NumPy": 1.0}, axis=0), ["as NumPy; goal: 1"]),
        (of_scan("windows", {"exact std": 3.0, "pandas std": 4.0, "bottleneck std": 1.0}, window=9),
         ["windows, float32, 4 x 8, axis 1, window 9: `exact std` is 0.333 times"]),
    ],
)  # fmt: skip
def test_running_sums_worst_first(rows, missed):
    found = goals.of_scan({"rows": rows})
    assert len(found) == len(missed)
    assert all(said in text for said, text in zip(missed, found, strict=True))


def test_the_command(tmp_path, monkeypatch, capsys):
    path = tmp_path / "segments_x.json"
    rows = of_case(1_000_000, "unsorted", GOOD | {"exact": 4.0})
    path.write_text(json.dumps(MADE | {"schema": 2, "kind": "segments", "rows": rows}))
    other = tmp_path / "tests.json"
    other.write_text('{"kind": "tests"}')
    monkeypatch.setattr("sys.argv", ["goals", str(path), str(other)])
    assert goals.main() == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("segments_x.json: 1,000,000 segments, unsorted: ") and len(said) == 2
