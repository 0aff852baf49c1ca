"""Statements of the notebooks' texts on a card's times, compared with the records.

A record that is made anew may show something else: then the text has to change, not the record.
"""

from __future__ import annotations

import itertools
import json
import re

import pytest

pytest.importorskip("nbformat")
pytest.importorskip("nbclient")

import gpureduce
import notebooks
from gpureduce import lectures
from gpureduce.bench import record
from gpureduce.bench.ratios import ratios
from gpureduce.bench.suites import axis as by_axis
from gpureduce.bench.suites import exact
from gpureduce.kernels import ladder
from gpureduce.lecture_findings import swapped
from gpureduce.lectures import axes, scans

DATA = notebooks.FOLDER / "data"


def recorded(name):
    record = lectures.recorded(name, DATA)
    if record.missing:
        pytest.skip(record.missing)
    return record


def us(record, **fields):
    """Times by strategy, each in microseconds."""
    return {row.strategy: row.median_us for row in record.only(**fields).rows}


def steps(record, block):
    rows = record.largest.only(block=block).rows
    return {b.label: a.median_us / b.median_us for a, b in itertools.pairwise(rows)}


def packing_gains_most():
    every = [steps(record, block) for record in (recorded("warp_execution"),
             lectures.printed("warp_execution")) for block in (256, 1024)]  # fmt: skip
    return all(max(s, key=s.get) == "sum_idx" and min(s, key=s.get) == "sum_unroll" for s in every)


def barriers_second_there_conflicts_here():
    theirs, ours = (
        steps(lectures.printed("warp_execution"), 256),
        steps(recorded("warp_execution"), 256),
    )
    return theirs["sum_warp"] > theirs["sum_seq"] and ours["sum_seq"] > ours["sum_warp"]


def large_blocks_lose():
    most = recorded("warp_execution").largest
    small, large = us(most, block=256), us(most, block=1024)
    return all(large[name] > small[name] for name in small)


def flat():
    record = recorded("warp_execution").only(block=256)
    rates = [[row.gb_s for row in record.only(strategy=s).rows] for s in us(record)]
    return all(max(line) < 1.1 * min(line) for line in rates)


def half_the_blocks():
    ours = us(recorded("lab"))
    return 1.6 < ours["sequential"] / ours["first_add"] < 2.1


def same_order():
    return not any(swapped(recorded(name)) for name in ("warp_execution", "lab", "profile"))


def no_last_rung_fills_the_memory():
    most = recorded("warp_execution").largest.only(block=256)
    shares = [record.rows[-1].percent_of_peak for record in (most, recorded("lab"))]
    shares.append(recorded("profile").rows[-1].facts["dram_throughput_pct"])
    return max(shares) < 60


def vector_load_is_the_largest_step():
    most = us(recorded("rungs").largest)
    order = ["unroll_full", "cascade", "warp_shfl", "vector_load", "tiles", "bulk_copy"]
    gains = {b: most[a] / most[b] for a, b in itertools.pairwise(order)}
    return max(gains, key=gains.get) == "vector_load"


def small_sums():
    small = us(recorded("rungs"), n=2**10)
    waits = min(small["cascade"], small["last_block"], small["grid_sync"])
    alone = ("one_block", "one_cluster")
    return all(small[name] < waits for name in alone) and small["last_block"] < 1.5 * waits


def one_block_then_one_cluster():
    few, more = us(recorded("rungs"), n=2**10), us(recorded("rungs"), n=2**16)
    return few["one_block"] < few["one_cluster"] and more["one_cluster"] < more["one_block"]


def over_cub():
    """How many times as fast as CUB, one sum at a time, by dtype and bytes."""
    rows = record.load(DATA / "bench_h100.json", "bench")["rows"]
    return {(r["dtype"], r["nbytes"]): r["ratio"] for r in ratios(rows, "apart", "fast", ["cub"])}


def fast_beside_cub():
    ratio = over_cub()
    small = [r for (_, nbytes), r in ratio.items() if nbytes <= 2**18]
    narrow = [r for (dtype, nbytes), r in ratio.items() if dtype in ("int8", "uint8")]
    wide = [
        r for (dtype, nbytes), r in ratio.items() if dtype[-2:] in ("32", "64") and nbytes >= 2**28
    ]
    ahead = sum(r > 1.05 for r in small) > 0.8 * len(small)
    return ahead and min(narrow) > 1.1 and all(0.95 < r < 1.1 for r in wide)


def not_behind_cub_in_between():
    ratio = [r for (_, nbytes), r in over_cub().items() if 2**18 < nbytes < 2**28]
    return min(ratio) > 0.995 and max(ratio) > 1.2


def blocks_rule_on_the_left():
    rows = recorded("block_sweep").rows
    rates = {(r.block, r.strategy): r.grid / r.median_us for r in rows}
    left = [rate for (block, _), rate in rates.items() if block in (32, 64)]
    right = [rate for (block, _), rate in rates.items() if block == 1024]
    return max(left) < 1.25 * min(left) and max(right) > 1.5 * min(right)


def written_out_does_not_lose():
    record = recorded("block_sweep")
    pairs = [us(record, block=block) for block in (32, 64, 128, 256, 512, 1024)]
    ahead = all(p["unroll_full"] < 1.02 * p["first_add_unroll_warp"] for p in pairs)
    theirs = us(lectures.printed("block_sweep"), block=256)
    return ahead and theirs["unroll_full"] > theirs["first_add_unroll_warp"]


def trees_of_the_cascade():
    rows = {(r.block, r.grid): r.median_us for r in recorded("block_grid").rows}
    idle = rows[128, 512] / rows[128, 1024]
    return 1.7 < idle < 2.2 and rows[1024, 4096] > 1.2 * rows[1024, 512]


def full_hardly_cares_then_rises():
    rows = {(r.block, r.grid): r.median_us for r in recorded("block_grid").rows}
    first, *more, last = [rows[512, grid] for grid in (512, 1024, 2048, 4096)]
    return all(abs(us / first - 1) < 0.03 for us in more) and last > 1.05 * first


def little_more_than_half():
    last = recorded("profile").rows[-1].facts
    busy = [last[key] for key in ("dram_throughput_pct", "compute_sm_pct", "memory_pct")]
    return 50 < busy[0] == max(busy) < 60


def instructions_halve_time_does_not():
    one, two = (row.facts for row in recorded("profile").rows[-2:])
    halved = two["executed_instructions"] < one["executed_instructions"] / 2
    return halved and two["duration_us"] > 0.8 * one["duration_us"]


def a_cheaper_tree_gains_nothing():
    most = us(recorded("rungs").largest)
    return abs(most["cascade"] / most["warp_shfl"] - 1) < 0.02


def host_adds_is_ahead():
    by = {row.label: row.median_us for row in recorded("trapezoid").rows}
    return (
        by["in shared memory, host adds"] < by["sequential addressing"] < by["further launches add"]
    )


def shared_memory_gains_little():
    by = {row.label: row.median_us for row in recorded("trapezoid").rows}
    return 0.9 < by["in shared memory, host adds"] / by["a tree per block, host adds"] < 1.1


def calls_differ_by_more_than_launches():
    """By more than five times the longest of the launches."""
    rows = recorded("trapezoid").rows[1:]
    calls = [row.facts["call_us"] for row in rows]
    return max(calls) - min(calls) > 5 * max(row.median_us for row in rows)


def the_race_is_wrong_every_time():
    [row] = recorded("trapezoid").only(strategy="global_race").rows
    return all(abs(value + 0.347022) > 1e-4 for value in row.facts["values"])


def exact_is_as_good_as_all_of_it():
    us = {}
    for row in exact.largest(exact.load(DATA / "exact_h200.json")):
        us.setdefault((row["dtype"], row["data"]), {})[row["strategy"]] = row["median_us"]
    of = {at: times["cub"] / times["exact"] for at, times in us.items()}
    whole = all(of[dtype, data] > 0.95 for dtype, data in of if dtype in ("float32", "float16"))
    kinds = {data for _, data in of}
    return whole and all(
        of[dtype, "bits"] < 1.02 * min(of[dtype, data] for data in kinds)
        for dtype in ("float64", "bfloat16")
    )


def axis_record():
    return axes.load(DATA / "axis_h100.json")


def copy_and_speeds(name):
    """GB/s of a copy, and of a call along axis 1 and axis 0, by columns."""
    rows = axis_record()["rows"]
    speeds = [by_axis.speeds(rows, axis)[name] for axis in (1, 0)]
    return by_axis.copy_gb_s(rows), *speeds


def columns_take_400_times_as_long():
    columns, rows = axes.both_axes(axis_record(), "CuPy")[2**24, 16]
    return columns > 400 * rows


def short_rows_are_pytorchs_weakness():
    copy, rows, columns = copy_and_speeds("torch")
    return columns[16] > 0.8 * copy and all(rows[c] < copy / 2 for c in (2, 4, 8, 16, 32))


def libraries_reach_the_copy():
    best = {name: copy_and_speeds(name) for name in ("CuPy", "torch")}
    return all(max(rows.values()) > 0.95 * copy for copy, rows, _ in best.values())


def a_block_for_32_columns():
    rows = axes.per_block(axis_record(), "CuPy", 0, 32).rows
    each = [float(row[3]) for row in rows if 64 <= int(row[0].replace(",", "")) <= 4096]
    alone = [float(row[3]) for row in rows if row[0] in ("2", "4", "8", "16", "32")]
    return max(each) < 1.1 * min(each) and max(alone) < 1.1 * min(each)


def a_block_for_a_row():
    rows = axes.per_block(axis_record(), "CuPy", 1, 1).rows
    each = {row[0]: float(row[3]) for row in rows}
    odd = each.pop("7")
    return len(each) >= 5 and max(each.values()) < 1.25 * min(each.values()) and odd < each["4"] / 2


def fast_is_flat():
    copy, rows, columns = copy_and_speeds("fast")
    return min(*rows.values(), *columns.values()) > 0.75 * copy


def libraries_are_not():
    found = [copy_and_speeds(name) for name in ("CuPy", "torch")]
    return all(min(*rows.values(), *columns.values()) < copy / 3 for copy, rows, columns in found)


def a_queue_takes_the_time():
    queue = us(recorded("rungs"), n=2**24)
    return queue["atomic_thread"] > 20 * queue["atomic_block"]


def a_row_costs_one_wait():
    waits = [float(row[-1]) for row in scans.columns().rows]
    return max(waits) < 1.1 * min(waits)


def rows_beside_a_copy():
    [copy] = [float(ms) for ms in re.findall(r"a copy takes ([\d.]+) ms", scans.columns().notes[0])]
    long, short = (float(row[2]) / copy for row in scans.columns().rows)
    return 1.8 < long < 2.3 and short > 40


CLAIMS = {
    "01_the_ladder": {
        "is the largest step on either card": packing_gains_most,
        "a likely reason for barriers to weigh more there": barriers_second_there_conflicts_here,
        "Large blocks lose, at the largest input, on every rung": large_blocks_lose,
        "Nearly flat, all of them": flat,
        "Nearly twice, on either card": half_the_blocks,
        "No two rungs change places in these three ladders": same_order,
        "none of these last rungs comes near": no_last_rung_fills_the_memory,
        "The largest step up there is `vector_load`": vector_load_is_the_largest_step,
        "Quickest are those with nobody to wait for": small_sums,
        "a single block, as long as it is not too much for one": one_block_then_one_cluster,
        "Where arrays are small, at most of the points": fast_beside_cub,
        "In between, `fast` is": not_behind_cub_in_between,
    },
    "02_block_and_grid": {
        "get through about as many blocks per microsecond": blocks_rule_on_the_left,
        "nothing in the kernel's text can make it lose": written_out_does_not_lose,
        "half the threads, twice the time": trees_of_the_cascade,
        "the cascade hardly cares for a while. Then time rises": full_hardly_cares_then_rises,
    },
    "03_why": {
        "it delivers little more than half of what it could": little_more_than_half,
        "the instructions more than halve, and the time hardly follows":
            instructions_halve_time_does_not,
        "a cheaper tree gains nothing any more": a_cheaper_tree_gains_nothing,
    },
    "04_trapezoid": {
        "the two versions whose block sums the host adds are *ahead*": host_adds_is_ahead,
        "Shared memory gains next to nothing here": shared_memory_gains_little,
        "They differ here by more than launches explain": calls_differ_by_more_than_launches,
        "Side by side is no order either": the_race_is_wrong_every_time,
    },
    "07_adding_by_key": {
        "The queue is nearly all of the time": a_queue_takes_the_time,
    },
    "05_numbers_you_can_trust": {
        "For float32 and float16 as good as all of it": exact_is_as_good_as_all_of_it,
    },
    "06_rows_and_columns": {
        "take more than 400 times as long as its rows": columns_take_400_times_as_long,
        "PyTorch is good at these columns and has its own weakness, short rows":
            short_rows_are_pytorchs_weakness,
        "both libraries are nearly as fast as the copy": libraries_reach_the_copy,
        "The last column hardly changes from 64 columns to 4,096": a_block_for_32_columns,
        "One block per row. (Seven rows are an exception": a_block_for_a_row,
        "At no shape is `fast` below three quarters of the copy": fast_is_flat,
        "Each of the two libraries falls below a third of it somewhere": libraries_are_not,
    },
    "09_every_prefix": {
        "a *row* takes as long with 64 columns as with 4,096": a_row_costs_one_wait,
        "about twice as long as a copy where rows are long, and far longer": rows_beside_a_copy,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("notebook", "said"), [(name, said) for name, claims in CLAIMS.items() for said in claims]
)
def test_the_record_bears_out(notebook, said):
    cells = notebooks.read(notebooks.FOLDER / f"{notebook}.ipynb").cells
    text = " ".join(" ".join(c.source for c in cells if c.cell_type == "markdown").split())
    assert said in text, "the claim is gone: take its test away"
    assert CLAIMS[notebook][said](), f"{notebook} says: {said}"


def test_times_follow_the_costs_that_verdicts_rank_by():
    """Of two rungs whose times differ by 3 percent, the slower one has no smaller costs."""
    rows = json.loads((DATA / "lecture_rungs_h100.json").read_text())["rows"]
    times = {
        row["strategy"]: row["median_us"]
        for row in rows if row["n"] == 2**30 and row["block"] == 256
    }  # fmt: skip
    costs = {
        name: sum(ladder.costs_of(gpureduce.explain(name, n=ladder.N, block=256)).values())
        for name in ladder.LADDER if name in times
    }  # fmt: skip
    assert len(costs) > 15
    for slow in costs:
        for quick in costs:
            if "cluster" not in (slow, quick) and times[slow] > 1.03 * times[quick]:
                assert costs[slow] >= costs[quick], (slow, quick)
