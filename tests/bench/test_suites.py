"""The suites of `gpureduce bench`: what each measures here, its record, its text, its errors."""

from __future__ import annotations

import gc
import os
import types

import numpy as np
import pytest
from test_records import DATA, DEPENDS

import gpureduce
from cases import AXIS, MADE, timed_rows
from gpureduce.bench import record
from gpureduce.bench.contenders import matrices
from gpureduce.bench.contenders.places import Place
from gpureduce.bench.runner import in_turns, measure, one_by_one
from gpureduce.bench.suites import axis, exact, scan, segments, several_devices
from gpureduce.cli.main import main
from gpureduce.core import devices, on_several

EMULATED = ["--device", "emulator", "--repeats", "2"]
CPU = ["--device", "cpu", "--repeats", "2"]
AXIS_KERNELS = {*AXIS} - {"exact_levels"}
SEGMENTS = {"exact", "exact, as called by default", "numpy.add.at", "fast", "exact, sorted=True"}
SCAN = {scan.ONE_THREAD, scan.TWO_THREADS, "NumPy"}
MEASURES = ("whole", "matrices", "unproven", "windows")
WINDOWS = {f"{by} {name}" for by in ("exact", "pandas", "bottleneck") for name in ("mean", "std")}
HOST = {"cpu", "emulator:0", "3 devices", "cpu + 3 devices"}


@pytest.fixture
def three_devices(monkeypatch):
    module = devices.emulator()
    module.set_device_count(3)
    monkeypatch.setattr(several_devices, "_HOST_EMULATED", (1 << 15,))
    monkeypatch.setattr(on_several, "_LEAST_BYTES", 1 << 12)
    monkeypatch.setattr("gpureduce.bench.clocks._CALLS_NS", 1000)
    yield
    gc.collect()  # arrays of devices that are no more could not be freed
    module.free_scratch()
    module.set_device_count(1)


STATISTICS = {"exact", "exact mean", "exact var", "exact norm", "exact vecdot", "NumPy mean",
              "NumPy var"}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "device", "words", "names", "texts"),
    [
        ("axis", "emulator",
         ["--axis", *EMULATED, "--sizes", "2000", "--dtypes", "float32", "int8", "--parts",
          "shapes", "middle"],
         {"shapes": {"fast", "exact", "NumPy"}, "middle": {"fast", "exact", "NumPy"}},
         ["kernel of fast", "1000 x 2 ", "4 x 7 x 64 ", "exact over fast"]),
        ("axis", "emulator",
         ["--axis", *EMULATED, "--sizes", "40000", "--dtypes", "float32", "--parts", "rungs",
          "small", "hard", "calls"],
         {"rungs": AXIS_KERNELS, "small": {"fast", "exact", "NumPy"},
          "hard": {"exact", matrices.USUAL}, "calls": {"fast", "exact", "NumPy"}},
         ["row_thread  ", "times as long", "1 x 4096 "]),
        ("axis", "cpu", ["--axis", *CPU, "--sizes", "512", "--dtypes", "float32", "int8"],
         {part: {"cpu", "exact", "NumPy"} for part in ("shapes", "middle", "patterns")}
         | {"hard": {"exact", matrices.USUAL}, "statistics": STATISTICS},
         ["GB/s along the middle axis", "var over the sum"]),
        ("scan", "cpu", ["--scan", *CPU, "--sizes", "200"],
         {"whole": SCAN, "matrices": SCAN, "unproven": SCAN, "windows": WINDOWS},
         ["GB/s of whole arrays", "1 x 200, window 100 ", "mean over bottleneck"]),
        ("scan", "emulator", ["--scan", *EMULATED, "--sizes", "33", "--dtypes", "float64"],
         {part: {"fast", "exact", "NumPy"} for part in ("matrices", "unproven")}
         | {"whole": {"fast", "exact", "NumPy", *scan.LESSONS}},
         ["float64  16 x 2 ", "exact over fast"]),
        ("segments", "cpu", ["--segments", *CPU, "--sizes", "7000"],
         {"segments": SEGMENTS | {"numpy.bincount"}},
         ["Milliseconds for 7,000 numbers", "as called", "nearly sorted", "rows of 64"]),
        ("segments", "emulator",
         ["--segments", *EMULATED, "--sizes", "2000", "--dtypes", "float32"],
         {"segments": SEGMENTS}, ["exact/best"]),
        ("devices", "emulator",
         ["--devices", "emulator:*", "--sizes", "2^10", "--dtypes", "float32", "--repeats", "3"],
         {"call": {"fast", "exact"}, "parts": {"fast", "exact"}, "host": HOST},
         ["Sums of equal parts, one on each device", "of linear", "us per further device"]),
    ],
)  # fmt: skip
def test_command(kind, device, words, names, texts, three_devices, tmp_path, capsys):
    path = tmp_path / "record.json"
    assert main(["bench", *words, "--output", str(path)]) == 0
    said = capsys.readouterr().out
    assert [text for text in texts if text not in said] == []
    assert ("tell nothing about a card" in said) == (device == "emulator")
    made = record.load(path, kind)
    assert made["device"] == device and set(made["trees"]) >= DEPENDS[f"{kind}_"]
    found = {}
    for row in made["rows"]:
        found.setdefault(row["measure"], set()).add(row["strategy"])
        assert 0 < row["low_us"] <= row["median_us"] <= row["high_us"]
        assert row["repeats"] in (1, 2, 3) and row["gb_s"] > 0
    assert found == names


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--axis", "--csv"], "--csv is not for --axis, which takes --sizes"),
        (["--parts", "small"], "--parts is for --axis"),
        (
            ["--scan", "--parts", "small"],
            "--parts is not for --scan, which takes --sizes, --dtypes",
        ),
        (["--scan", "--dtypes", "int8"], "--scan takes float32 and float64, not int8"),
        (["--segments", *CPU, "--cub", "/no/such.so"], "/no/such.so"),
        (["--cub", "x", "--axis"], "--cub is not for --axis"),
        (["--segments", *CPU, "--grid", "3"], "--grid is not for --segments, which takes --sizes"),
        (["--segments", *CPU, "--output", "a.csv"], "--output must end in .json"),
        (["--segments", "--dtypes", "float80"], "float32, float16, bfloat16, float64, int64"),
        (["--devices", "cpu"], "--devices takes real or emulated GPUs"),
        (["--devices", "emulator:7"], "there is no device 'emulator:7'"),
        (["--devices", "emulator", "--csv"], "--csv is not for --devices, which takes --sizes"),
        (["--devices", "emulator", "--output", "x.csv"], "--output must end in .json"),
    ],
)
def test_errors(words, said, capsys):
    assert main(["bench", *words]) == 2
    assert said in capsys.readouterr().err


# --- cases and data -------------------------------------------------------------------------------

N = 1 << 28  # of the records of axes


def test_shapes_go_from_the_narrowest_to_the_widest():
    found = axis.shapes(N)
    assert found[0] == (N // 2, 2) and found[-1] == (1, N)
    assert {(4, N // 4), (7, N // 7), (1 << 18, 1024), (N // 255, 255)} <= set(found)
    assert all(0.99 * N < rows * columns <= N for rows, columns in found)
    every = axis.cases(N, ("float32", "int8"), ["shapes"])
    assert sum(case.dtype == "float32" for case in every) == 2 * len(found)
    assert sum(case.dtype == "int8" for case in every) == 2 * -(-len(found) // 3)
    assert {case.axis for case in every} == {0, 1}


def test_cases_of_axes_are_in_order_and_fit():
    dtypes = ("float32", "float64", "int8")
    of = {part: axis.cases(N, dtypes, [part]) for part in axis.PARTS}
    assert all(of.values()) and {case.dtype for case in of["hard"]} == {"float32", "float64"}
    assert {case.axis for case in of["hard"]} == {0, 1} == {case.axis for case in of["rungs"]}
    every = axis.cases(N, dtypes)
    assert sorted(map(str, every)) == sorted(str(case) for some in of.values() for case in some)
    assert [case.dtype for case in every] == sorted(
        (case.dtype for case in every), key=dtypes.index
    )
    assert not axis.cases(10, ("float32",), ["small", "calls"])


def sums_with_bounds(terms, numbers=3):
    """After each term: the sums in 2 or 3 numbers, and the bound of csrc/exact/proven.h."""

    def two_sum(total, x):
        after = total + x
        part = after - total
        return after, (total - (after - part)) + (x - part)

    total, rest, tail, bound = np.zeros((4, terms.shape[1]))
    for x in terms.astype(np.float64):
        total, error = two_sum(total, x)
        if numbers == 3:
            rest, error = two_sum(rest, error)
            tail = tail + error
        else:
            rest = rest + error
        bound = bound + abs(error)
        yield abs(total + rest + tail), 4 * len(terms) * 2.0**-52 * bound


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "axis"), [((300, 16), 1), ((9, 1001), 1), ((64, 64), 0)])
def test_every_sum_of_a_hard_matrix_is_zero_and_not_proven(shape, axis, dtype):
    matrix = matrices.hard_matrix(matrices.Case(*shape, axis, dtype, measure="hard"))
    assert matrix.shape == shape and matrix.dtype == dtype
    assert not gpureduce.sum(matrix, "exact", axis=axis).value.any()
    for numbers in (2, 3):
        *_, (sums, uncertain) = sums_with_bounds(np.moveaxis(matrix, axis, 0), numbers)
        assert (uncertain > sums / 4).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 3000), 1), ((1500, 4), 0)])
def test_hardly_any_running_sum_of_unproven_data_is_proven(shape, axis, dtype):
    matrix = scan.unproven(matrices.Case(*shape, axis, dtype, measure="unproven"))
    assert matrix.shape == shape and matrix.dtype == dtype and np.isfinite(matrix).all()
    proven = 0
    for sums, uncertain in sums_with_bounds(np.moveaxis(matrix, axis, 0)):
        last_place = np.spacing(sums.astype(dtype)).astype(np.float64)
        proven += np.count_nonzero(uncertain < last_place)
    assert proven < 0.05 * matrix.size


def test_cases_of_running_sums():
    found = scan.cases(N, ("float32", "float64"), on_processors=False)
    of = {m: [case for case in found if case.measure == m] for m in MEASURES}
    for dtype in ("float32", "float64"):
        assert {c.size for c in of["whole"] if c.dtype == dtype} == {2**k for k in range(20, 29, 2)}
        shapes = {(c.shape, c.axis) for c in of["matrices"] if c.dtype == dtype}
        assert shapes == {(shape, along) for shape in axis.shapes(N) for along in (0, 1)}
    assert {c.axis for c in of["unproven"]} == {0, 1} and not of["windows"]
    windows = [c.window for c in scan.cases(5000, ("float64",), on_processors=True) if c.window]
    assert windows == [3, 100]


def test_cases_of_segments_cover_the_table_and_what_differs_from_it():
    found = segments.cases(1 << 26)
    table = {(c.segments, c.ids) for c in found if c.dtype == "float32" and c.columns == 1}
    for count in (100, 10_000, 1_000_000, 16_000_000):
        assert {(count, ids) for ids in ("unsorted", "sorted", "offsets")} <= table
    assert {c.ids for c in found} == set(segments.IDS)
    assert {c.data for c in found} == set(segments.DATA) and len(set(found)) == len(found)
    assert {c.columns for c in found} == {1, 64, 256}
    assert {c.dtype for c in found} == {"float32", "float16", "bfloat16", "float64", "int64"}
    assert all(c.segments * c.columns <= c.n for c in segments.cases(5000))


@pytest.mark.parametrize("kind", segments.IDS)
def test_ids_are_as_named(kind):
    of = segments.given(segments.Case(5000, 50, kind))
    counts = np.bincount(of.ids, minlength=50)
    assert counts.sum() == 5000 and of.values.shape == (5000,) and of.out.shape == (50,)
    assert of.ids.min() >= 0 and of.ids.max() < 50 and of.ids.dtype == np.int64
    is_sorted = bool(np.all(of.ids[1:] >= of.ids[:-1]))
    assert is_sorted == (kind in segments.SORTED) == (of.offsets is not None)
    largest = counts.max() / 5000
    assert {"one": largest == 1, "half": 0.4 < largest < 0.6, "zipf": 0.1 < largest < 0.4}.get(
        kind, largest < 0.05
    )
    if is_sorted:
        assert of.offsets[0] == 0 and of.offsets.dtype == np.int64
        assert np.array_equal(np.diff(of.offsets), counts)


def test_values_of_segments_are_as_named():
    def given(**more):
        return segments.given(segments.Case(4096, 9, **more))

    assert given(dtype="int64").values.dtype == np.int64
    rows = given(dtype="float64", columns=64)
    assert rows.values.shape == (64, 64) and rows.out.shape == (9, 64) and len(rows.ids) == 64
    bits = given(data="bits").values
    assert np.isfinite(bits).all() and np.frexp(bits)[1].max() > 100
    uniform = given(data="uniform", dtype="float16", index="int32")
    assert (uniform.values >= 0).all() and (uniform.values <= 1).all()
    assert uniform.ids.dtype == np.int32 and uniform.values.dtype == np.float16


@pytest.mark.parametrize("data", exact.DATA)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_data_of_exact_sums_are_finite_and_as_large_as_asked(dtype, data):
    array = exact.make(dtype, 25_000, data)
    assert array.dtype.name == dtype and array.size == 25_000
    assert np.isfinite(array.astype(float)).all()
    exponents = len(np.unique(np.frexp(array[array != 0].astype(float))[1]))
    assert exponents > (25 if dtype == "float16" else 200) or data != "bits"


def test_counts_of_devices_are_powers_of_two_and_all():
    assert [several_devices.counts(n) for n in (1, 2, 3, 4, 8)] == [
        [1], [1, 2], [1, 2, 3], [1, 2, 4], [1, 2, 4, 8]
    ]  # fmt: skip


# --- contenders -----------------------------------------------------------------------------------


def test_sums_in_one_graph_are_captured_once_and_each_has_its_own_elements(monkeypatch):
    captured, seen = [], []
    monkeypatch.setattr(Place, "captured", lambda self, run: captured.append(run) or run)
    case = matrices.Case(1, 4096, 1, measure="small")
    base = np.arange(10 * 4096, dtype=np.float32)
    found = list(matrices.contenders(Place("emulator", ("numpy",)), case, base))
    assert [one.strategy for one in found] == ["fast", "exact", "NumPy"] and len(captured) == 2
    monkeypatch.setattr(matrices._Sums, "add", lambda self, matrix, *_, **__: seen.append(matrix))
    found[0].value()
    assert [matrix[0, 0] for matrix in seen] == [4096 * i for i in range(10)]


class Card:
    """Stands in for a card: events measure 1 ms, and the processor's clock measures 2 ms."""

    def by_clock(self, run):
        return lambda repeats: [2000.0] * repeats

    def by_events(self, run):
        return lambda repeats: [1000.0] * repeats


def test_on_a_card_only_what_has_its_own_stream_is_timed_by_the_clock():
    place = Place("emulator", (), card=Card())
    found = [place.contender("fast", lambda: 1), place.contender("JAX", lambda: 1, own_stream=True),
             place.contender("fast", lambda: 1, count=10)]  # fmt: skip
    assert [one.fields["source"] for one in found] == ["cuda_event", "perf_counter", "cuda_event"]
    assert in_turns(found, one_by_one(2)) == [[1000.0] * 2, [2000.0] * 2, [100.0] * 2]
    assert [one.may_fail for one in found] == [False, True, False]


def test_calls_of_ours_run_on_so_many_threads(monkeypatch):
    monkeypatch.setenv("GPUREDUCE_THREADS", "7")
    found = []
    run = scan.on_threads(2, lambda: found.append(os.environ["GPUREDUCE_THREADS"]))
    run()
    assert found == ["2"] and os.environ["GPUREDUCE_THREADS"] == "7"


class OnCard(Card):
    """NumPy's functions as PyTorch's: arrays of this card lie in host memory."""

    empty_like = staticmethod(np.empty_like)
    cumsum = staticmethod(np.cumsum)


def test_running_sums_on_a_card_beside_all_libraries(monkeypatch):
    """Only a flat array is added up by CUB; JAX is timed by the clock."""
    calls = []
    cub = types.SimpleNamespace(CUPY_CUB_CUMSUM=5, device_scan=lambda *given: calls.append(given))
    cupy = types.SimpleNamespace(
        from_dlpack=lambda x: x, cumsum=lambda x, axis, out: np.cumsum(x, axis, out=out)
    )
    monkeypatch.setattr(scan.libraries, "load", lambda name: (None, cupy))
    monkeypatch.setattr(scan, "load_other", {"cupy.cuda.cub": cub}.get)
    monkeypatch.setattr(matrices, "of_jax", lambda case, x, method: getattr(x, method))
    monkeypatch.setattr(Place, "own", "cpu")
    monkeypatch.setattr(Place, "put", lambda self, array: array)
    monkeypatch.setattr(Place, "on_stream", lambda self, run: run)
    place = Place("cuda", ("torch", "cupy", "jax"), OnCard, OnCard())
    cases = [matrices.Case(1, 6, 0, measure="whole"), matrices.Case(2, 3, 1, measure="matrices")]
    base = np.arange(6, dtype=np.float32)
    for case in cases:
        made = {one.strategy: one for one in scan.contenders(place, case, base)}
        names = ["fast", "exact", scan.COPY, "torch", "CuPy", scan.JAX]
        is_flat = case.measure == "whole"
        names[4:4] = [scan.CUB] * is_flat
        names[2:2] = scan.LESSONS * is_flat
        assert list(made) == names
        assert [one.fields["source"] for one in made.values()] == [
            *["cuda_event"] * (len(names) - 1), "perf_counter"
        ]  # fmt: skip
        assert {one.fields["nbytes"] for one in made.values()} == {48}
        compare, right = scan.comparison(case), np.cumsum(case.of(base), 1).reshape(-1)
        for name in {*made} - {scan.COPY, scan.JAX, *scan.LESSONS}:
            compare(name, entries := made[name].value())
            if name != scan.CUB:
                assert np.array_equal(getattr(entries, "value", entries).reshape(-1), right)
        compare(scan.CUB, None)
        with pytest.raises(ValueError, match="torch does not add up"):
            compare("torch", right + 100)
    ((sums, operation),) = calls
    assert sums.shape == (6,) and operation == 5


def test_windows_are_those_of_pandas_and_bottleneck():
    case = matrices.Case(1, 200, 1, "float64", measure="windows", window=9)
    base = np.random.default_rng(1).standard_normal(200)
    place = Place("cpu", ("pandas", "bottleneck"))
    made = {one.strategy: one.value() for one in scan.contenders(place, case, base)}
    assert set(made) == WINDOWS
    for name, found in made.items():
        ours = made[f"exact {name.split()[1]}"]
        assert np.allclose(found, ours, rtol=1e-12, atol=1e-12, equal_nan=True)


def rows_of(case, device="emulator"):
    return list(measure(segments.groups(Place(device, ("numpy",)), [case], 1, None)))


def test_a_call_that_adds_up_something_else_is_refused(monkeypatch):
    monkeypatch.setattr(segments, "_of_numpy", lambda of: {"wrong": lambda: np.full(20, 1e6)})
    with pytest.raises(ValueError, match="wrong does not add up"):
        rows_of(segments.Case(2000, 20))
    pattern = several_devices.Pattern("float32", 1 << 16)
    right = pattern.array().sum(dtype=np.float64)
    pattern.check("fast", 3 * right, 3)
    for wrong in (2 * right, float("nan"), -3 * right):
        with pytest.raises(ArithmeticError, match="fast of 3 parts gave"):
            pattern.check("fast", wrong, 3)


def test_a_library_that_cannot_take_the_arrays_is_named(monkeypatch):
    monkeypatch.setattr(segments, "_of_numpy", lambda of: {"numpy": of.no_such_array})
    rows = rows_of(segments.Case(2000, 20))
    assert [row.get("failed", "")[:15] for row in rows] == ["AttributeError:", "", ""]
    assert rows[0]["strategy"] == "numpy"


@pytest.mark.filterwarnings("error")
def test_sums_of_random_bits_overflow_without_a_warning():
    rows = rows_of(segments.Case(1 << 14, 10, data="bits"), "cpu")
    assert "numpy.add.at" in [row["strategy"] for row in rows]


def test_calls_of_other_libraries():
    torch = pytest.importorskip("torch")
    base = torch.arange(600, dtype=torch.float32)
    for case in (matrices.Case(20, 30, 1), matrices.Case(5, 6, 1, "float32", 20)):
        of = matrices._Sums(Place("cpu", ()), case, base)
        for run in matrices.of_torch(torch, of).values():
            sums = of.matrices[0].sum(case.axis)
            assert torch.equal(run().reshape(sums.shape), sums)


# --- records as text ------------------------------------------------------------------------------


def test_text_of_a_card_along_axes():
    """The best library, `exact`, a copy, and libraries that fail."""
    case = vars(matrices.Case(4, 1024, 1)) | {"kernel": "x", "nbytes": 2000}
    us = {"fast": 2.0, "exact": 4.0, matrices.CUB: 3.0, scan.CUB: 3.0, "torch": 5.0}
    failed = [case | {"strategy": matrices.JAX, "failed": "RuntimeError: no"}]
    for part, suite, cub in (("shapes", axis, "DeviceSegmentedReduce, by torch"),
                                ("matrices", scan, f"{scan.CUB}: in place")):  # fmt: skip
        rows = timed_rows(case | {"measure": part}, us | {"copy": 1.0})
        said = suite.as_text(MADE | {"rows": rows, "failed": failed})
        assert f"{matrices.JAX} failed: RuntimeError: no" in said and cub in said
        line = next(line for line in said.splitlines() if "4 x 1024" in line)
        assert line.split()[-3:] == ["1.50", "0.50", "0.50"]


def of_case(segments_, ids, ms):
    """Rows of a case on a card, from milliseconds."""
    usual = {"exact": 1.0, "exact, as called by default": 1.1, "torch index_add": 2.0}
    case = vars(segments.Case(1 << 26, segments_, ids)) | {"measure": "segments"}
    return timed_rows(case, {name: 1e3 * time for name, time in (usual | ms).items()})


def test_text_of_a_card_by_segment():
    rows = of_case(100, "unsorted", {"torch deterministic": 20.0, "jax segment_sum": 3.0})
    rows += of_case(100, "offsets", {"fast": 0.5, "torch segment_reduce": 0.8})
    rows[4]["source"] = "perf_counter"
    failed = [{"strategy": "cupy", "failed": "ImportError: no cupy"}]
    text = segments.as_text(MADE | {"rows": rows, "failed": failed})
    lines = [line.split() for line in text.splitlines()]
    assert "Milliseconds for 67,108,864 numbers" in text and "* whole calls" in text
    assert "Left out:\ncupy: ImportError: no cupy" in text and "limit" not in text
    found = {line[1]: line for line in lines if line[:1] == ["float32"]}
    assert found["unsorted"][-2:] == ["0.50", "20.0"]  # over index_add; deterministic over ours
    assert found["offsets"][-1] == "1.25"  # over segment_reduce, not index_add
    text = segments.table(of_case(1000, "unsorted", {"limit": 0.5}))
    assert text.splitlines()[0].split()[-2:] == ["determ./exact", "exact/limit"]
    assert text.splitlines()[2].split()[-2:] == ["0.50", "2.00"]  # a limit is no library


def test_sums_of_parts_are_compared_with_one_device():
    """NCCL, which adds nothing up on one device, is compared with the sums of PyTorch there."""

    def row(strategy, count, us):
        case = {"measure": "call", "nbytes": 4096 * count, "devices": count}
        return timed_rows(case, {strategy: us})[0]

    rows = [row("torch", 1, 20.0), row("torch", 4, 26.0), row("nccl", 4, 50.0)]
    found = several_devices.scaled({"rows": [*rows, {"measure": "host"}]})["rows"]
    assert [one["linear"] for one in found] == [1.0, 20 / 26, 0.4, None]
    assert [one["added_us"] for one in found] == [None, 2.0, 10.0, None]


@pytest.mark.skipif(not (DATA / "axis_h100.json").exists(), reason="not measured yet")
def test_speeds_of_the_record():
    rows = record.load(DATA / "axis_h100.json", "axis")["rows"]
    for along in (0, 1):
        found = axis.speeds(rows, along)
        assert {"fast", "exact", "torch"} <= found.keys()
        assert set(found["fast"]) == {columns for _, columns in axis.shapes(N)}


def test_exact_bench_on_the_emulator(tmp_path, monkeypatch, capsys):
    path = tmp_path / "record.json"
    words = ["exact_bench", "--device", "emulator", "--mib", "0.1", "--kib", "1", "--rounds", "1",
             "--dtypes", "float32", "float64", "--record", str(path)]  # fmt: skip
    monkeypatch.setattr("sys.argv", words)
    assert exact.main() == 0
    made = exact.load(path)
    assert {row["measure"] for row in made["rows"]} == {"kernel"} and len(made["rows"]) == 20
    assert sum(row["nbytes"] == 1024 for row in made["rows"]) == 2 * 2
    assert {row["strategy"] for row in made["rows"]} == {"fast", "exact"}
    assert all(row["median_us"] > 0 and row["repeats"] == 5 for row in made["rows"])
    table = exact.markdown(made)
    assert "| float64, bits |" in table and made["card"] in table
    assert capsys.readouterr().out.strip() == table
    monkeypatch.setattr("sys.argv", [*words, "--force", "--cub-reproducible", "nothing.so"])
    with pytest.raises(OSError, match=r"nothing\.so"):
        exact.main()


def test_exact_sums_on_one_thread_beside_fsum():
    rows = list(measure([*exact.on_thread(3, (64, 4096))]))
    timed = [row for row in rows if "failed" not in row]
    assert {(row["strategy"], row["data"]) for row in rows if "failed" in row} == {
        (name, "bits") for name in ("fsum", "fsum_of_list")
    }  # the partial sums of math.fsum overflow
    assert sum(row["strategy"] == "exact" for row in timed) == 4 * 4 * 2
    assert all(0 < row["low_us"] <= row["median_us"] <= row["high_us"] for row in timed)
    text = exact.markdown(MADE | {"rows": timed, "load_average": 0.5})
    assert "| float16, in its cache |" in text and "| float64, from memory |" in text
    assert "at a load average of 0.5 on 16 processors" in text and "times as fast as" in text
