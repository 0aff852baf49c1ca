"""The lectures' experiments: their runs, tables and files, and a card's differences."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise

import numpy as np
import pytest

import gpureduce
from cases import MADE
from gpureduce import lectures
from gpureduce.bench.provenance import provenance
from gpureduce.core import devices
from gpureduce.hardware import tables as counter_tables
from gpureduce.hardware import verify_counters
from gpureduce.hardware.control import Alone
from gpureduce.hardware.rows import Row
from gpureduce.lecture_findings import blocks_started, busiest, counted, ends, filled, order
from gpureduce.lectures import findings, kernel_profile, records
from gpureduce.lectures.measuring import Bench
from gpureduce.lectures.summaries import origins, quickest, steps
from gpureduce.lectures.tables import in_unit, show

TIMED = [name for name in lectures.EXPERIMENTS if name != "profile"]

# As Nsight Compute prints it: messages, names, units, values.
NCU = """==PROF== Connected to process 4711 (/usr/bin/python3)
==PROF== Profiling "interleaved_mod" - 0: 0%....50%....100% - 1 pass
==PROF== Disconnected from process 4711
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",\
"Grid Size","Device","CC","gpu__time_duration.sum","launch__grid_size",\
"sm__throughput.avg.pct_of_peak_sustained_elapsed","smsp__inst_executed.sum"
"","","","","","","","","","","","{unit}","","%","inst"
"0","4711","python3","127.0.0.1","void interleaved_mod<const unsigned int *, unsigned int>\
(T1, T2 *, unsigned long)","1","7","(512, 1, 1)","(32768, 1, 1)","0","9.0","{one}","32,768",\
"40.69","166,805,504"
"1","4711","python3","127.0.0.1","cascade","1","7","(512, 1, 1)","(2048, 1, 1)","0","9.0",\
"{two}","2,048","n/a","4,694,016"
"""


@pytest.mark.parametrize("name", TIMED)
def test_sizes_and_figures_are_the_lectures(name):
    cases = lectures.find(name).cases(1)
    if name == "warp_execution":
        assert {c.n // 2**20 for c in cases} == {16, 64, 256, 1024}
        assert {c.block for c in cases} == {256, 1024} and len(cases) == 40
        assert {c.finish for c in cases} == {"host"}  # one round, the host adds
        at = {(c.strategy, c.block, c.n // 2**20): c.theirs for c in cases}
        assert at["sum_mod", 256, 16] == 2.10 and at["sum_warp", 1024, 1024] == 41.01
    elif name == "lab":
        assert [c.theirs for c in cases] == [0.706, 0.446, 0.434, 0.236, 0.175]
        assert {(c.n, c.block, c.dtype) for c in cases} == {(2**24, 1024, "int32")}
    elif name == "block_sweep":
        assert {(c.n, c.finish) for c in cases} == {(2**22, "relaunch")} and len(cases) == 36
        assert cases[0].theirs == 7.39 and cases[-1].theirs == 29.78
    elif name == "block_grid":
        at = {(c.block, c.grid): c.theirs for c in cases}
        assert at[512, 2048] == 123.87 and at[1024, 4096] == 147.84 and len(at) == 16
    elif name == "trapezoid":
        assert {(c.n, c.dtype) for c in cases} == {(65536, "float64")}
        assert [c.theirs for c in cases][:6] == [5.5, 0.09, 0.27, 0.24, 0.10, 0.08]
        wrong = [c.strategy for c in cases if "wrong" in c.label]
        assert wrong == ["global_race"]


@pytest.mark.parametrize("name", TIMED)
def test_smaller_on_the_emulator(name, tmp_path):
    experiment = lectures.find(name)
    cases = experiment.cases(experiment.shrink)
    assert min(c.n for c in cases) >= 1
    device = devices.choose_device("emulator")
    few = sorted(cases, key=lambda case: case.n)[:3]
    rows = tuple(experiment.measure(Bench(device, 1), few))
    for case, row in zip(few, rows, strict=True):
        source = "perf_counter" if case.strategy == "cpu" else "emulator"
        assert (row.n, row.finish, row.source) == (case.n, case.finish, source)
        assert row.block == (case.block or row.block) and row.percent_of_peak is None
        assert row.low_us <= row.median_us <= row.high_us


def test_tables_for_notebooks_are_html_and_escaped():
    device = devices.choose_device("emulator")
    experiment = lectures.find("lab")
    rows = tuple(experiment.measure(Bench(device, 1), experiment.cases(2**14)))
    record = lectures.Record("lab", 2**14, rows, {"date": "2026-01-01"})
    text = record._repr_html_()
    assert text.count("<tr>") == 6 and "divergent interleaved" in text


def test_columns_of_figures_are_flush_right():
    table = origins(lectures.printed("lab"))
    assert table.right == [] and "text-align:left" in table._repr_html_()
    assert show(lectures.printed("lab")).tables[0].right == [1, 2, 3, 4, 5]


def test_records_of_another_kind_are_refused(tmp_path):
    other = tmp_path / "other.json"
    other.write_text('{"kind": "tests"}')
    with pytest.raises(ValueError, match="is not a record of kind 'lecture'"):
        lectures.load(other)


@pytest.fixture
def ncu(monkeypatch, tmp_path):
    def prints(text):
        fake = tmp_path / "ncu"
        fake.write_text(f"#!/bin/sh\ncat <<'X'\n{text}\nX\n")
        fake.chmod(0o755)
        monkeypatch.setenv("NCU", str(fake))

    return prints


CARD = devices.Device("cuda:0", "cuda", "NVIDIA Test", (9, 0), 132, 2**30, 2**20, 1e3, 1e3)


def test_output_of_the_profiler_is_read(ncu):
    ncu(NCU.format(unit="ns", one="1,110,020.5", two="124,000"))
    cases = [lectures.find("profile").cases(1)[i] for i in (0, -1)]
    first, second = kernel_profile.counters(CARD, cases)
    assert first["duration_us"] == pytest.approx(1110.0205)
    assert second["duration_us"] == pytest.approx(124)
    assert first["executed_instructions"] == 166805504
    assert first["blocks"] == 32768
    assert "compute_sm_pct" in first and "compute_sm_pct" not in second
    ncu("==WARNING== No kernels were profiled.")
    with pytest.raises(ValueError, match="ncu saw no launch of interleaved_mod"):
        kernel_profile.counters(CARD, cases)
    ncu("==ERROR== something")
    with pytest.raises(kernel_profile.NoProfiler, match="something"):
        kernel_profile.counters(CARD, cases)


def test_no_profiler_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda place: None)
    with pytest.raises(kernel_profile.NoProfiler, match="there is no ncu"):
        kernel_profile.counters(CARD, [])


def test_a_profiled_record_has_the_report_beside_it(ncu):
    """The whole way with a stand-in for ncu; the card's own is used in test_on_the_card."""
    cases = lectures.find("profile").cases(1)
    head = '"ID","Kernel Name",' + ",".join(f'"{m}"' for m in kernel_profile.METRICS.values())
    units = '"","",' + ",".join(
        '"ns"' if "time" in m else '""' for m in kernel_profile.METRICS.values()
    )
    lines = [
        f'"0","{c.strategy}",' + ",".join(['"7.5"'] * len(kernel_profile.METRICS)) for c in cases
    ]
    ncu("\n".join([head, units, *lines]))
    rows = tuple(lectures.find("profile").measure(Bench(CARD, 1), cases))
    assert [row.strategy for row in rows][-1] == "cascade" and rows[-1].facts["blocks"] == 7.5
    text = str(show(lectures.Record("profile", 1, rows, MADE)))
    assert "166,805,504" in text and "RTX 2080 Ti" in text and "Test" in text


@pytest.mark.gpu
@pytest.mark.alone  # ncu fails where other processes load the GPU
def test_on_the_card():
    record = lectures.run("lab", "cuda", repeats=3)
    assert record.shrink == 1 and not record.emulated
    assert all(0 < row.percent_of_peak < 100 for row in record.rows)
    try:
        rows = lectures.run("profile", "cuda").rows
    except kernel_profile.NoProfiler as error:
        pytest.skip(str(error))
    times = [row.facts["duration_us"] for row in rows]
    assert times[0] > times[-1] > 0


def test_every_array_of_a_case_fits_its_sum():
    """The same numbers over and over, so that 2^30 of them are made quickly."""
    bench = Bench(devices.choose_device("emulator"), 1)
    array = bench.array("int32", 2**23)
    assert array.dtype == np.int32 and np.array_equal(array[: 2**22], array[2**22 :])
    assert bench.array("int32", 2**23) is array
    assert int(gpureduce.sum(array, "cpu").value) == int(array.sum())
    sizes = [c.n for c in lectures.find("warp_execution").cases(1)]
    assert all(a <= b for a, b in pairwise(sizes))


# --- what the lectures print, and records that are not there yet ----------------------------------


@pytest.mark.parametrize("name", [n for n in lectures.EXPERIMENTS if n != "rungs"])
def test_printed_figures_are_the_lectures(name):
    record = lectures.printed(name)
    assert record.printed and not record.emulated and record.real is record
    unit = lectures.find(name).unit
    assert len(record.rows) == sum(c.theirs is not None for c in lectures.find(name).cases(1))
    for row, theirs in zip(record.rows, record.theirs, strict=True):
        figure = row.median_us / 1e6 if unit == "s" else in_unit(row, unit)
        assert figure == pytest.approx(theirs)
    text = str(show(record))
    assert "As printed in" in text and "not recorded yet" not in text


def test_every_figure_of_the_lectures_is_in_a_table():
    """The tables hold each number of lectures.json, as it is printed there."""
    tables = {n: str(show(lectures.printed(n))) for n in lectures.EXPERIMENTS if n != "rungs"}
    source = lectures.sources()
    for row in source["warp_level_lab"]["rows"]:
        assert f"{row['kernel_ms']:.3f}" in tables["lab"] and f"{row['gb_s']:.2f}" in tables["lab"]
        assert f"{row['speedup']:.2f}" in tables["lab"]
    for share in source["warp_level_lab"]["percent_of_peak"].values():
        assert str(share) in tables["lab"]
    for by_block in source["warp_execution"]["kernel_ms"].values():
        for figures in by_block.values():
            assert all(f"{ms:.2f}" in tables["warp_execution"] for ms in figures)
    for figures in source["scheduling_lecture"]["gb_s"].values():
        assert all(f"{gb_s:.2f}" in tables["block_sweep"] for gb_s in figures)
    grids = source["seven_kernels_report"]["block_by_grid_us"]
    for block in ("128", "256", "512", "1024"):
        assert all(f"{us:.2f}" in tables["block_grid"] for us in grids[block])
    for figures in source["seven_kernels_report"]["kernels"].values():
        assert f"{figures[4]:,}" in tables["profile"] and f"{figures[0]:.2f}" in tables["profile"]
    for s in source["trapezoid_lecture"]["seconds"].values():
        assert f"{s:.2f}" in tables["trapezoid"]


def test_a_record_that_is_not_there_yet(tmp_path):
    record = lectures.recorded("lab", tmp_path)
    assert record.missing == "H100" and record.printed
    assert "H100: not recorded yet. Shown instead: the lecture's own figures." in str(show(record))
    assert "not recorded yet" in record._repr_html_()
    assert record.only(strategy="sequential").missing == "H100"


def test_a_record_that_is_there(tmp_path):
    made = lectures.run("lab", "emulator", repeats=1)
    made.save(tmp_path / "lecture_lab_h100.json")
    found = lectures.recorded("lab", tmp_path)
    assert found == made and not found.missing and "not recorded" not in str(show(found))
    with pytest.raises(ValueError, match=r"repeats must be from 1 to .* - 1, not 0"):
        lectures.run("lab", "emulator", repeats=0)
    with pytest.raises(ValueError, match="there is no lecture"):
        lectures.recorded("physics", tmp_path)


@pytest.mark.parametrize(
    ("card", "model"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA GeForce RTX 4090", "4090"),
        ("NVIDIA GeForce RTX 2080 Ti", "2080-ti"),
        ("Tesla T4", "t4"),
        ("NVIDIA TITAN V", "titan-v"),
        ("emulator", "emulator"),
    ],
)
def test_a_record_is_named_after_the_cards_model(card, model):
    assert records.file_name("lab", card) == f"lecture_lab_{model}.json"


def test_experiments_of_no_lecture_have_an_h100s_record(tmp_path):
    with pytest.raises(ValueError, match="no lecture prints"):
        lectures.printed("rungs")
    record = lectures.recorded("rungs", tmp_path, "A100")
    assert record.missing == "A100" and record.rows == lectures.packaged("rungs").rows
    said = "A100: not recorded yet. Shown instead: those of an NVIDIA H100 80GB HBM3."
    assert said in str(show(record))


def test_steps_and_quickest_stand_beside_the_lectures():
    text = str(steps(lectures.printed("lab")))
    assert "1.58x" in text and "last warp unrolled (lab 28) over divergent" in text
    assert "4.03x" in text and text.count("As printed") == 1
    two = steps(lectures.printed("warp_execution"), None)
    assert two.head == ["", "Tesla T4, 256 threads", "Tesla T4, 1024 threads"]
    assert two.rows[0] == ["sum_idx", "1.40x", "1.49x"] and two.rows[-1][1:] == ["2.65x", "2.66x"]
    best = quickest(lectures.printed("block_sweep"))
    assert [row[1] for row in best.rows] == ["128"] * 6 and best.rows[0][2] == "2.3x"
    assert quickest(lectures.printed("block_grid"), by="grid").rows[0][1] == "2048"


def test_sizes_that_do_not_fit_are_left_out():
    small = devices.Device("cuda:0", "cuda", "small", (8, 0), 20, 2**32, 2**20, 1e3, 1e3)
    sizes = {case.n for case in lectures.find("warp_execution").cases(1)
             if records._fits(case, small)}  # fmt: skip
    assert sizes == {n * 2**20 for n in (16, 64, 256)}


@pytest.mark.parametrize("name", TIMED)
def test_emulated_times_stand_beside_no_gpus(name):
    """Neither those of a record nor the lecture's: an H100's record is shown in their place."""
    cards = lectures.packaged(name)
    rows = [dataclasses.replace(row, source="emulator", median_us=12345.6) for row in cards.rows]
    record = lectures.Record(name, 1, tuple(rows), {"date": "2026-01-01", "card": "emulator"})
    tables, instead = show(record), show(cards)
    assert tables.tables == instead.tables and tables.notes[1:] == instead.notes
    assert tables.notes[0].startswith("No GPU ran here")
    assert "emulated ms" not in str(tables) and "emulated ms" not in record._repr_html_()
    if lectures.find(name).source:
        assert name == "trapezoid" or "emulated" not in f"{steps(record)}{quickest(record)}"
        with pytest.raises(ValueError, match="emulated times are never compared with a GPU's"):
            findings.order(record)


# --- counters beside a card's ---------------------------------------------------------------------


def test_counters_without_a_record(tmp_path):
    found = counter_tables.recorded(["sum_mod"], 2**16, path=tmp_path / "counters_h200.json")
    assert found.notes[0].startswith("H200: not recorded yet")
    counted = gpureduce.explain("sum_mod", n=2**16, dtype="int32", block=256, finish="host")
    assert found.rows[0][:2] == ["interleaved_mod", f"{counted.counters['global_load_sectors']:,}"]


def test_counters_beside_a_record(tmp_path):
    counted = [
        ("sequential", 256, "global_load_sectors", 8192, 8192, ""),
        ("warp_shfl", 16, "global_load_sectors", 8192, 1, ""),
        ("warp_shfl", 16, "shared_store_accesses", 96, 96, ""),
        ("warp_shfl", 16, "shared_store_conflicts", 0, 4, "arbitration"),
    ]
    rows = tuple(Row(name, 2**16, 256, *rest) for name, *rest in counted)
    table = verify_counters.Table("int32", rows, control=(Alone("redux", "int32", "x", 1, 1),))
    made = provenance("counters") | {"card": "NVIDIA H200"}
    path = tmp_path / "counters_h200.json"
    path.write_text(json.dumps(made | table.as_dict()))
    found = counter_tables.recorded(["sequential", "warp_shfl"], 2**16, path=path)
    assert found.head[1:3] == ["global sectors read", "H200"]
    assert [row[1:3] for row in found.rows] == [["8,192", "8,192"], ["8,192", "1"]]
    assert "Of 4 counts on record 2 are equal, 1 differ for" in found.notes[0]
    assert "0 of 1 counts equal the model's. In 1 counts, the pipe" in found.notes[1]
    assert "4.0% (warp_shfl, " in found.notes[1]
    assert "block 256: 4 of 100 wavefronts of stores)" in found.notes[1]
    assert "1 of 1 counts of bank conflicts" in found.notes[2]


def measured(name, change=None):
    """The lecture's times as the record of a card. `change` returns a factor for a row's time."""
    rows = [
        dataclasses.replace(row, source="cuda_event", repeats=5,
                            median_us=row.median_us * (change(row) if change else 1))
        for row in lectures.printed(name).rows
    ]  # fmt: skip
    return lectures.Record(name, 1, tuple(rows), MADE)


def test_their_times():
    for name in ("warp_execution", "lab", "block_sweep", "block_grid", "profile", "trapezoid"):
        record = measured(name)
        assert record.their_us == pytest.approx([row.median_us for row in record.rows])
    assert measured("lab").their_us[0] == 706 and measured("trapezoid").their_us[0] == 5.5e6


def test_last_over_first_beside_the_lectures():
    twice = measured("lab", lambda row: 2 if row.strategy == "interleaved_mod" else 1)
    table = ends(measured("warp_execution"), twice, measured("profile"))
    cells = [(row[0], row[2], row[3]) for row in table.rows]
    assert cells == [
        ("warp_execution, block 256", "2.65x on Tesla T4", "2.65x"),
        ("warp_execution, block 1024", "2.66x on Tesla T4", "2.66x"),
        ("lab", "4.03x on the lecture's card", "8.07x"),
        ("profile", "8.96x on RTX 2080 Ti", "8.96x"),
    ]


def test_order():
    same = order(measured("lab"), measured("warp_execution"))
    assert [row[0] for row in same.rows] == ["lab", "warp_execution"]
    assert all(row[1].startswith("nowhere") for row in same.rows)

    def quicker(row):
        return 0.5 if row.strategy == "unroll_full" and row.block in (256, 512) else 1

    table = order(measured("block_sweep", quicker))
    assert [row[:2] for row in table.rows] == [
        ["block_sweep, block 256, 512", "templated (complete) over first add"],
        ["block_sweep, block 256, 512", "templated (complete) over unrolling (last warp)"],
    ]
    assert table.rows[0][2:] == ["0.78x on the lecture's card", "1.56x"]


def test_small_differences_do_not_change_the_order():
    """32 threads: 11.05 against 10.46; a hair less is still the lecture's order."""

    def a_hair(row):
        return 1.07 if row.strategy == "sequential" and row.block == 32 else 1

    assert order(measured("block_sweep", a_hair)).rows[0][1].startswith("nowhere")


def test_kernels_that_are_wrong_have_no_place():
    """The wrong one is the second quickest in the lecture; slowest of all here, it is not told."""
    slow = measured("trapezoid", lambda row: 1000 if row.strategy == "global_race" else 1)
    assert [row[1] for row in order(slow).rows] == ["nowhere: all rungs in the lecture's order"]


def test_counted_beside_times():
    record = measured("block_sweep").only(block=256)
    table = counted(record, lectures.printed("profile"))
    rows = {row[0]: dict(zip(table.head, row, strict=True)) for row in table.rows}
    one, two = rows["unrolling (last warp)"], rows["templated (complete)"]
    same = ("launches", "blocks", "shared wavefronts", "warps at barriers", "sectors")
    assert [one[name] for name in same] == [two[name] for name in same]
    assert one["launches"] == "3" and one["instructions, profiled"] == "23,964,288"
    explained = gpureduce.explain("first_add_unroll_warp", n=2**22, dtype="int32", block=256,
                                  finish="relaunch")  # fmt: skip
    assert one["shared wavefronts"] == f"{sum(k.wavefronts for k in explained.kernels):,}"
    assert "sectors" not in counted(measured("trapezoid").only(strategy="sequential")).head


def test_busiest():
    table = busiest(measured("profile"))
    assert table.head == ["", "RTX 2080 Ti", "9000"]
    assert table.rows[0][1:] == ["compute, 41%"] * 2 and table.rows[-1][1] == "DRAM, 86%"
    assert table.rows[1][1] == "memory, 50%"


def test_blocks_by_time():
    rows = measured("block_sweep").rows
    record = lectures.Record("block_sweep", 1, tuple(
        dataclasses.replace(row, grid=2**22 // row.block, median_us=100.0) for row in rows
    ), MADE)  # fmt: skip
    table = blocks_started(record)
    assert table.head[1:] == ["32", "64", "128", "256", "512", "1024"]
    assert table.rows[0][1:4] == ["1,311", "655", "328"]


def test_the_cascade_by_its_trees():
    table = filled(measured("block_grid"))
    warps = [int(row[3].replace(",", "")) for row in table.rows]
    assert warps == sorted(warps) and warps[0] == 512 * 4 * 2  # four warps, two barriers
    assert table.rows[0][:3] == ["128 x 512", "24%", "256"]
    assert len(filled(lectures.printed("block_grid")).head) == len(table.head) - 1


def test_steps_say_which_gains_most():
    notes = steps(lectures.printed("warp_execution")).notes
    assert "Tesla T4, 256 threads: sum_idx, sum_warp, sum_seq, sum_unroll." in notes


def test_whole_calls_stand_beside_the_launches():
    rows = tuple(
        dataclasses.replace(row, facts={"values": [0.0]} | (
            {} if row.strategy == "cpu" else {"call_us": 123.4}))
        for row in measured("trapezoid").rows
    )  # fmt: skip
    table = show(lectures.Record("trapezoid", 1, rows, MADE)).tables[0]
    at = table.head.index("whole call, us")
    assert [row[at] for row in table.rows][:2] == ["", "123"]
    assert {len(row) for row in table.rows} == {len(table.head)}
