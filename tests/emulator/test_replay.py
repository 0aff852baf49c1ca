"""`replay`: its steps, the counts, what the values contain, sentences, files and errors."""

import functools
import gc
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpureduce
from gpureduce.core import registry
from gpureduce.emulator import counts, replay, replay_steps
from user_kernels import TREE_OF_INTEGERS as TREE

LADDER = [
    s.name
    for s in registry.STRATEGIES.values()
    if s.launches_kernels and s.kind not in ("axis", "segments", "choice")
]
KEYS = [name for name in LADDER if registry.STRATEGIES[name].kind == "keys"]
RIGHT = [name for name in LADDER if not registry.STRATEGIES[name].broken]


def dtype_of(name: str) -> str:
    return "float32" if name in ("exact", *KEYS) else "int32"


def contained(shown: gpureduce.Replay, number: int) -> list[int]:
    return [first + step * i for first, step, count in shown.parts[number].runs()
            for i in range(count)]  # fmt: skip


def counters_of(told: gpureduce.Explanation) -> dict[str, int]:
    """Of all launches."""
    total = dict.fromkeys(counts.NAMES, 0)
    for kernel in told.kernels:
        for counter, count in (kernel.counters | kernel.details).items():
            total[counter] += count
    return total


@pytest.mark.parametrize("n", [60, 100, 300])
def test_a_users_kernel_has_the_launches_and_the_sectors_of_explain(n: int):
    made = gpureduce.kernel(TREE)
    shown, told = (f(made, n=n, block=64) for f in (gpureduce.replay, gpureduce.explain))
    assert shown.counters == counters_of(told) and shown.is_right and shown.unknown is None
    assert shown.launches == (((n + 63) // 64, 64), (1, 64))[: 1 + (n > 64)]
    assert {one.base % 256 for one in shown.arrays} == {0} and "4 sectors" in shown.sentences[0]


@pytest.mark.parametrize("name", LADDER)
def test_counters_and_what_the_values_contain(name: str):
    shown = gpureduce.replay(name, 515, block=128, dtype=dtype_of(name))
    # What `exact` does depends on the numbers, and explain takes zeros.
    zeros = np.zeros(515, np.float32)
    counted = gpureduce.replay(name, values=zeros, block=128) if name == "exact" else shown
    how = {"segment_ids": shown.segment_ids} if name in KEYS else {"n": 515, "sample": False}
    told = gpureduce.explain(name, block=128, dtype=dtype_of(name), **how)
    assert counted.counters == counters_of(told)
    each_value_is_the_sum_of_the_elements_that_it_is_said_to_contain(name, shown)
    if name in KEYS:
        the_last_values_contain_the_elements_of_their_segments_once(shown)
    elif name in RIGHT and name != "exact":
        the_last_value_contains_every_element_once(shown)


def each_value_is_the_sum_of_the_elements_that_it_is_said_to_contain(name, shown):
    """For `exact`, up to the step from which on that is not known."""
    elements, known = np.array(shown.elements), 0
    total = functools.cache(lambda part: elements[contained(shown, part)].sum())
    for step in shown.steps[: shown.unknown]:
        for parts, values in ((step.parts, step.values), (step.result_parts, step.results)):
            for part, value in zip(parts, values, strict=bool(parts)):
                if part is None or shown.parts[part].twice or shown.parts[part].foreign:
                    continue
                assert total(part) in (np.sum(value), np.ravel(value)[0])  # or beside a mark
                known += 1
    assert known > (100 if name != "exact" else 0)


def the_last_value_contains_every_element_once(shown):
    assert shown.is_right and shown.unknown is None and shown.value == shown.expected
    stores = [step for step in shown.steps if step.kind in ("store", "atomic")
              and shown.arrays[step.array].space == "global"]  # fmt: skip
    sets = [shown.parts[part] for step in stores
            for part in step.result_parts or step.parts if part is not None]  # fmt: skip
    whole = [one for one in sets if len(one) == 515]
    assert whole and not any(one.twice or one.foreign for one in whole)


def the_last_values_contain_the_elements_of_their_segments_once(shown):
    assert shown.is_right and shown.unknown is None and shown.value == shown.expected
    held = {}
    for step in shown.steps:
        if step.kind in ("store", "atomic") and shown.arrays[step.array].name == "out":
            numbers = [offset // shown.arrays[step.array].element for offset in step.offsets]
            held |= zip(numbers, step.result_parts or step.parts, strict=True)
    for key in range(len(shown.value)):
        of_key = [i for i, one in enumerate(shown.segment_ids) if one == key]
        assert contained(shown, held[key]) == of_key and not shown.parts[held[key]].twice


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", KEYS)
def test_sums_by_given_ids(name: str, dtype: str):
    ids = np.arange(200) % 7
    ids = np.sort(ids) if name == "key_sorted" else ids
    values = np.linspace(-3, 3, 200).astype(dtype)
    how = {"segment_ids": ids, "num_segments": 9}
    shown = gpureduce.replay(name, values=values, beside=name, **how)
    assert shown.is_right and shown.dtype == dtype and shown.segment_ids == tuple(ids.tolist())
    assert len(shown.value) == 9 and shown.value[7:] == (0, 0) and shown.unknown is None
    assert "of 9 segments are right within the rounding" in str(shown)
    assert shown.beside.value == shown.value and shown.beside.segment_ids == shown.segment_ids
    made = shown.as_dict()
    assert made["value"] == [*shown.value] and made["segment_ids"] == ids.tolist()


def test_arrays_of_sums_by_key_have_their_names_and_types():
    shown = gpureduce.replay("key_fixed", 64)
    found = {one.name: one.dtype for one in shown.arrays}
    assert found == {"in": "float32", "key": "uint32", "out": "float32", "word": "fixed",
                     "ticket": "uint32"}  # fmt: skip
    assert "update word[0..5], up to 9 lanes at one address, one after another." in "\n".join(
        shown.sentences
    )
    tiny = gpureduce.replay("key_fixed", values=[2.0**-34] * 40)  # its unit is 2^-32
    assert tiny.is_right and set(tiny.value) == {0}


def test_wrong_sums_by_key_are_told():
    shown = gpureduce.replay("key_fixed", values=[1.0, 2.0**31, 2.0**31, 5.0])
    assert not shown.is_right and [one[1] for one in shown.wrong] == [2.0**32]
    assert "A sum came out as " in str(shown) and "4294967296" in str(shown)
    every = gpureduce.replay("exact", segment_ids=[0, 2, 2])
    assert every.is_right and every.value == (1, 0, 5) and "exactly right" in str(every)


def test_an_element_that_is_left_out_is_not_in_the_sum():
    shown = gpureduce.replay("missing_barrier", 256, block=128)
    assert not shown.is_right
    last = [step for step in shown.steps if step.kind == "store"][-1]
    missing = set(range(256)) - set(contained(shown, last.parts[0]))
    assert sum(shown.elements[i] for i in missing) == shown.expected - shown.value > 0


def words_of(shown: gpureduce.Replay, step: replay_steps.Step, lane: int, value):
    """The words of a lane's access: their place in memory, and their values."""
    array = shown.arrays[step.array]
    owner = step.owner[lane] if step.owner else step.block
    scope = (step.launch, owner) if array.space == "shared" else (-1, -1)
    values = value if isinstance(value, tuple) else (value,)
    first, size = array.base + step.offsets[lane], step.bytes // len(values)
    return [((*scope, first + i * size, size), one) for i, one in enumerate(values)]


def replayed_memory(shown: gpureduce.Replay) -> dict[tuple[int, ...], object]:
    """Makes all stores of a replay in the order of its steps. Each load must find their values."""
    memory: dict[tuple[int, ...], object] = {}
    for number, step in enumerate(shown.steps):
        for lane in range(len(step.lanes) if step.kind in replay_steps.ACCESSES else 0):
            if step.kind != "store":
                for place, value in words_of(shown, step, lane, step.values[lane]):
                    assert str(memory.get(place, value)) == str(value), (number, step, lane)
            if step.kind != "load":
                after = step.values if step.kind == "store" else step.results
                memory.update(words_of(shown, step, lane, after[lane]))
    return memory


ORDERS = ["lockstep", "lockstep 1", "forward", "reverse", "random 3", "random 11"]


@pytest.mark.parametrize("name", LADDER)
def test_the_steps_make_the_memory_that_the_kernel_sees(name: str):
    cases = [(63, 32, "float16"), (1, 32, "int8"), (300, 96, "int32"), (515, 128, "float64")]
    # Each kernel has a third of the orders, and the next two kernels have the other orders.
    for number in range(LADDER.index(name) % 3, len(ORDERS), 3):
        n, block, dtype = cases[(number + len(name)) % len(cases)]
        if name == "exact" or np.dtype(dtype).name not in registry.STRATEGIES[name].dtypes:
            dtype = dtype_of(name)
        block = 128 if registry.STRATEGIES[name].kind == "tiles" else block
        shown = gpureduce.replay(name, n, block=block, dtype=dtype, schedule=ORDERS[number])
        replayed_memory(shown)
        assert shown.unknown is None or name not in RIGHT or name == "exact"


# Lanes 16 to 31 come first to the last store, which the other lanes share.
LATE = """__global__ void late(const int *in, int *out, int n)
{
    __shared__ int s[16];
    int lane = threadIdx.x;
    if (lane < 16)
        for (int i = 0; i < 3; i++) s[lane] = in[lane];
    out[0] = lane;
}"""
WIDE = """struct Wide { int a[12]; };
__global__ void wide(const int *in, int *out, int n)
{
    __shared__ Wide s[2];
    Wide w;
    for (int i = 0; i < 12; i++) w.a[i] = in[i];
    if (threadIdx.x == 0) s[0] = w;
    __syncthreads();
    if (threadIdx.x == 0) out[0] = s[0].a[0] + s[0].a[11];
}"""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("text", [LATE, WIDE])
def test_memory_is_the_last_store(text: str, order: str):
    made = gpureduce.kernel(text, finishes=True)
    shown = gpureduce.replay(made, 32, block=32, grid=1, schedule=order)
    memory = replayed_memory(shown)
    out = next(array for array in shown.arrays if array.name == "out")
    assert memory[-1, -1, out.base, 4] == shown.value
    if text == WIDE:
        stored = [one for key, one in sorted(memory.items()) if key[0] == 0]
        assert stored == list(shown.elements[:12])
        assert any(len(shown.parts[step.parts[0]]) == 2 for step in shown.steps if step.parts)


TWICE = """__global__ void twice(const int *in, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(out, in[i]);
    if (i == 3) atomicAdd(out, in[i]);
}"""
FOREIGN = """__global__ void foreign(const int *in, int *out, int n)
{
    __shared__ int s[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && threadIdx.x != 5) s[threadIdx.x] = in[i];
    __syncthreads();
    if (threadIdx.x == 0) {
        int sum = 0;
        for (int t = 0; t < blockDim.x; t++) sum += s[t];
        out[blockIdx.x] = sum;
    }
}"""


COUNT = """__global__ void count(const int *in, int *out, int n)
{
    if (threadIdx.x < 2) atomicAdd(out, 1);
}"""
STORED = """__global__ void stored(const int *in, int *out, int n)
{
    __shared__ int s[64];
    s[threadIdx.x] = 5;
    __syncthreads();
    if (threadIdx.x == 0) out[0] = s[0];
}"""


@pytest.mark.parametrize(("text", "repeated", "foreign"), [
    (TWICE, [(3, 1, 1)], ""), (FOREIGN, [], "what was in memory before"), (COUNT, [], "a constant"),
    (STORED, [], "a constant"),
])  # fmt: skip
def test_what_a_wrong_sum_contains(text: str, repeated: list[tuple[int, int, int]], foreign: str):
    shown = gpureduce.replay(gpureduce.kernel(text), 64, block=64)
    assert not shown.is_right
    last = [step for step in shown.steps if step.kind in ("store", "atomic")][-1]
    parts = shown.parts[(last.result_parts or last.parts)[-1]]
    assert parts.repeated() == repeated and parts.foreign == foreign


@pytest.mark.parametrize(("name", "how", "wanted"), [
    ("interleaved_idx", {"n": 256}, [
        "Line 17: lanes 0 to 31 of warp 0 of block 0 read in[0..31], 4 sectors of 32 bytes, all "
        "used.",
        "Line 23: lanes 0 to 31 of warp 0 of block 0 read shared[0, 2, .., 62], 2 wavefronts where "
        "1 would do.",
        "Line 24: lanes 0 to 31 of warp 1 of block 3 pass __syncthreads().",
        "Lanes 1 to 31 of warp 0 of block 0 end.",
    ]),
    ("warp_shfl", {"n": 32, "block": 32}, [
        "Line 21: lanes 0 to 31 exchange values by __shfl_down_sync(): lanes 0 to 15 get the "
        "values of lanes 16 to 31.",
        "Line 23: lane 0 writes shared[0], no conflict.",
    ]),
    ("key_warp", {"n": 40}, [
        "Line 16: lanes 0 to 31 of warp 1 exchange values by __ballot_sync(): the condition holds "
        "for lanes 0 to 7.",
        "Line 20: lanes 0 to 31 of warp 0 exchange values by __shfl_sync(): lanes 1 to 31 get the "
        "value of lane 0."]),
    ("atomic_thread", {"n": 64}, [
        "Line 14: lanes 0 to 31 of warp 0 update out[0], one after another."]),
    ("vector_load", {"n": 256, "dtype": "float64"}, [
        "lanes 0 to 31 of warp 0 of block 0 read in[0..63], 16 sectors of 32 bytes, all used."]),
])  # fmt: skip
def test_sentences(name: str, how: dict[str, object], wanted: list[str]):
    shown = gpureduce.replay(name, **how)
    assert [one for one in wanted if one not in "\n".join(shown.sentences)] == []


def test_sentences_tell_who_gets_whose_value():
    calls = [("__shfl_sync", "3"), ("__shfl_xor_sync", "4"), ("__shfl_sync", "5 * t"),
             ("__shfl_sync", "t"), ("__shfl_down_sync", "1")]  # fmt: skip
    lines = "\n".join(f"    v = {call}(0xffffffff, v, {of});" for call, of in calls)
    text = f"""__global__ void k(const int *in, int *out, int n)
{{
    int t = threadIdx.x, v = in[t];
{lines}
    if (t < 4) v = __shfl_down_sync(0xffffffff, v, 1);
    if (t == 0) out[0] = v;
}}"""
    shown = gpureduce.replay(gpureduce.kernel(text, finishes=True), 32, block=32)
    said = [one.partition("()")[2] for one in shown.sentences if "__shfl" in one]
    assert said == [
        ": lanes 0 to 2, 4 to 31 get the value of lane 3.",
        ": lane i gets the value of lane i ^ 4.",
        ": lane 1 gets that of lane 5, lane 2 gets that of lane 10, lane 3 gets that of lane 15 "
        "and so on.",
        ".",
        ": lanes 0 to 30 get the values of lanes 1 to 31.",
        ": lanes 0 to 2 get the values of lanes 1 to 3; lane 3 reads lane 4, which takes no part: "
        "CUDA leaves the value undefined.",
    ]


def test_lanes_that_come_late_are_named_with_the_counts():
    shown = gpureduce.replay(gpureduce.kernel(LATE, finishes=True), 32, block=32, grid=1)
    late = [step for step in shown.steps if step.is_late]
    assert [step.lanes for step in late] == [tuple(range(16))]
    assert shown.sentences[shown.steps.index(late[0])].endswith(
        "write out[0]; with the lanes before, 1 sector of 32 bytes, 12% of them used."
    )


def test_explain_names_the_replay():
    assert "gpureduce replay sequential" in str(gpureduce.explain("sequential", n=64, block=32))
    keyed = gpureduce.explain("key_warp", segment_ids=[0, 1], block=64)
    assert "gpureduce replay key_warp" in str(keyed) and keyed.block == 64


def test_all_stores_of_exact_are_inside_of_their_arrays():
    shown = gpureduce.replay("exact", 40)
    stores = [step for step in shown.steps if step.kind == "store"]
    assert shown.arrays[stores[-1].array].name == "out"
    for step in stores:
        array = shown.arrays[step.array]
        assert max(step.offsets) + step.bytes <= array.count * array.element


def test_a_step_of_another_blocks_shared_memory_names_the_block():
    shown = gpureduce.replay("cluster", 2048, block=64)
    assert any("read shared[0] of blocks 0 to 7" in one for one in shown.sentences)


@pytest.mark.parametrize("name", ["tiles", "bulk_copy"])
def test_a_mark_beside_a_sum_is_a_constant(name: str):
    """As a number of the sum's dtype, it is no integer."""
    shown = gpureduce.replay(name, 200, block=256, dtype="float64", grid=1, schedule="lockstep 1")
    assert shown.unknown is None


@pytest.mark.parametrize("dtype", ["int8", "uint16", "float16", "float64", "bool"])
def test_dtypes(dtype: str):
    """Booleans have too few values to tell elements apart."""
    shown = gpureduce.replay("cascade", 200, dtype=dtype)
    assert shown.is_right and shown.dtype == dtype
    is_known = dtype != "bool"
    assert shown.unknown == (None if is_known else 0)
    assert any(len(one) == 200 for one in shown.parts) == is_known


NOT_SUMS = {
    "largest": "s[t] = max(in[t], in[t + 32]);",
    "magnitude": "s[t] = abs(in[t]) + abs(in[t + 32]);",
    "positive": "s[t] = (in[t] > 0 ? in[t] : 0) + (in[t + 32] > 0 ? in[t + 32] : 0);",
    "above 4": "s[t] = (in[t] > 4 ? in[t] : 0) + in[t + 32];",
    "twice": "s[t] = in[t] * 2 + in[t + 32];",
    "with one more": "s[t] = in[t] + in[t + 32] + 1;",
    "sum": "s[t] = in[t] + in[t + 32];",
}


@pytest.mark.parametrize("dtype", ["int", "float"])
@pytest.mark.parametrize("name", NOT_SUMS)
def test_what_is_no_sum_has_no_set(name: str, dtype: str):
    """The set of each value that has one adds up to the value."""
    text = f"""__global__ void odd(const {dtype} *in, {dtype} *out, int n)
{{
    __shared__ {dtype} s[32];
    int t = threadIdx.x;
    {NOT_SUMS[name]}
    __syncthreads();
    if (t == 0) {{
        {dtype} total = 0;
        for (int i = 0; i < 32; i++) total += s[i];
        out[0] = total;
    }}
}}"""
    values = [(7 * i) % 19 - 9 for i in range(64)]
    shown = gpureduce.replay(gpureduce.kernel(text, finishes=True), values=values, block=32, grid=1,
                             dtype="int32" if dtype == "int" else "float32")  # fmt: skip
    for step in shown.steps:
        for part, value in zip(step.parts, step.values, strict=bool(step.parts)):
            if part is not None and not shown.parts[part].twice:
                assert sum(shown.elements[i] for i in contained(shown, part)) == value
    is_unknown = shown.steps[-2].parts in ((None,), ())
    assert is_unknown == (shown.unknown is not None) == (name != "sum")


@pytest.mark.parametrize(("values", "is_right"), [
    ([0.1] * 200, True), ([1e8, 1.0, -1e8, 1.0] * 50, True), ([float("nan"), 1.0], True),
    ([float("inf"), 1.0], True),
])  # fmt: skip
def test_float_sums_are_right_within_the_bound_of_rounding(values: list[float], is_right: bool):
    shown = gpureduce.replay("sequential", values=values, dtype="float32")
    assert shown.is_right == is_right
    assert shown.bound <= 200 * 2**-22 * sum(map(abs, values)) or not np.isfinite(values).all()
    assert ("within the rounding" in str(shown)) == (shown.bound > 0)
    assert not gpureduce.replay("missing_barrier", 256, block=128, dtype="float32").is_right
    exact = gpureduce.replay("exact", values=values, dtype="float32")
    assert exact.is_right and exact.bound == 0 and "exactly right" in str(exact)


FAULT = "__global__ void far(const int *in, int *out, int n) { out[0] = in[threadIdx.x + 99999]; }"


def test_a_failing_kernel_is_shown_up_to_its_fault():
    shown = gpureduce.replay(gpureduce.kernel(FAULT), 64)
    assert shown.fault == "line 1: thread 0 reads in[99999]; in has 64 elements"
    assert shown.value is None and shown.steps and shown.fault in str(shown)


def test_a_failing_access_to_shared_memory_is_the_last_step():
    text = TREE.replace("half; half", "half > 0; half").replace("t + half", "t + blockDim.x")
    shown = gpureduce.replay(gpureduce.kernel(text), 64, block=64)
    assert shown.fault.startswith("line 8: thread 0 reads s[64]")
    assert shown.start == len(shown.steps) - 1
    assert shown.sentences[-1].startswith("Line 8: lane 0 of warp 0 reads s[64]")


@pytest.mark.parametrize(("code", "line"), [
    ("s[t + 64] = in[i];", "Line 5: lane 0 of warp 0 of block 0 writes s[64]."),
    ("s[t] = s[t + 64];", "Line 5: lane 0 of warp 0 of block 0 reads s[64]."),
    ("s[t] = in[i]; __syncthreads(); if (i == 69) s[t + 95] = 1;",
     "Line 5: lane 5 of warp 0 of block 1 writes s[100]."),
    ("*(int *)(t + 1) = 0;", "Line 5: lane 0 of warp 0 of block 0 ends."),
])  # fmt: skip
def test_a_fault_before_the_access_is_the_last_step(code: str, line: str):
    """The emulator checks indexes of static arrays, and alignment, before the access."""
    text = f"""__global__ void k(const int *in, int *out, int n)
{{
    __shared__ int s[64];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    {code}
    if (t == 0) out[blockIdx.x] = s[0];
}}"""
    shown = gpureduce.replay(gpureduce.kernel(text), 128, block=64)
    assert shown.fault.startswith("line 5: thread") and shown.start == len(shown.steps) - 1
    assert shown.sentences[-1] == line
    assert {step.line for step in shown.steps} <= {0, 5, 6}  # no lines of the emulator's own
    assert {step.file for step in shown.steps if step.file} == {*shown.texts}  # the page shows it
    assert json.loads(shown.to_json())["steps"][-1].get("values", ["?"]) == ["?"]


def test_an_access_behind_an_array_is_named_by_the_array():
    text = FAULT.replace("99999", "1")
    shown = gpureduce.replay(gpureduce.kernel(text), 32, block=32)
    assert "in[1..32]" in shown.sentences[shown.start]
    assert shown.counters["global_load_requests"] == 1


@pytest.mark.parametrize(("values", "dtype", "total"), [
    ([0.5, 0.25], "float32", 0.75), (np.array([3, -4], np.int8), "int8", -1),
    ([2**31 - 1, 1], "int32", -(2**31)), ([0.1, 0.2], "bfloat16", 0.30078125),
])  # fmt: skip
def test_values_keep_their_dtype(values, dtype: str, total: float):
    """Floats are rounded to a dtype that is given."""
    wanted = dtype if dtype == "bfloat16" else None
    shown = gpureduce.replay("cascade", values=values, dtype=wanted)
    assert shown.dtype == dtype and shown.is_right and shown.value == total


def test_two_side_by_side_have_the_same_elements():
    shown = gpureduce.replay("interleaved_idx", beside="sequential", values=[3, 1, 4, 1, 5] * 50)
    assert shown.beside.elements == shown.elements and shown.value == shown.beside.value == 700
    twice = gpureduce.replay("sequential", 64, beside="sequential")  # this is no race
    assert "<h1>sequential and sequential</h1>" in twice.page()


def test_a_race_is_shown_in_both_orders():
    found = gpureduce.races("missing_barrier", block=128)
    first = gpureduce.replay("missing_barrier", race=found.races[0])
    assert (first.n, first.block, first.dtype) == (found.n, 128, "int32")
    assert [first.value, first.expected] == [found.wrong["lockstep"], found.expected]
    assert first.marks[0] < first.marks[1] and first.beside.marks[0] > first.beside.marks[1]
    assert first.is_right != first.beside.is_right  # in one order, the sum comes out right
    for shown in (first, first.beside):
        kinds = [(shown.steps[i].kind, shown.steps[i].line) for i in shown.marks]
        line = found.races[0].sides[0].place.line
        assert kinds == [("load", line), ("store", line)] and shown.start == min(shown.marks)
        assert "__syncthreads() is missing" in shown.race
    with pytest.raises(ValueError, match="leave beside out"):
        gpureduce.replay("missing_barrier", beside="sequential", race=found.races[0])
    with pytest.raises(ValueError, match="n=1031 and block=128"):
        gpureduce.replay("sequential", 64, race=found.races[0])


def test_a_race_of_a_later_round_is_shown_there():
    text = """__global__ void k(const int *in, int *out, int n)
{
    __shared__ int s[64];
    int t = threadIdx.x, v = 0;
    for (int round = 0; round < 3; ++round) {
        s[t] = in[t] + round;
        __syncthreads();
        v += s[63 - t];
        if (round == 0) __syncthreads();
    }
    if (t == 0) out[0] = v;
}"""
    made = gpureduce.kernel(text, finishes=True)
    (race,) = gpureduce.races(made, 64, block=64, grid=1).races
    shown = gpureduce.replay(made, race=race)
    a, b = sorted(shown.marks)
    assert "__syncthreads" in {step.kind for step in shown.steps[:a]}
    assert "__syncthreads" not in {step.kind for step in shown.steps[a:b]}


RACE = gpureduce.races("missing_barrier").races[0]


@pytest.mark.parametrize(("how", "error", "words"), [
    (("row_warp",), ValueError, "sums along an axis"),
    (("numpy",), ValueError, "runs on the processor"),
    (("fast",), ValueError, "picks another strategy"),
    (("sequential", 0), ValueError, "n must be from 1"),
    (("sequential", "first_add"), TypeError, "beside= takes a second kernel"),
    (("sequential", 10, {"values": [1]}), ValueError, "leave n out"),
    (("sequential", None, {"values": [[1]]}), ValueError, "list of numbers"),
    (("sequential", 2**20), ValueError, "at most 16,384 elements.*use n=1,024"),
    (("sequential", None, {"values": [0.5], "dtype": "int32"}), ValueError, "values.0. is 0.5"),
    (("sequential", None, {"values": ["a"]}), TypeError, "must be numbers"),
    (("sequential", None, {"values": np.zeros(20000)}), ValueError, "at most 16,384"),
    (("sequential", None, {"values": np.ma.array([1, 2], mask=[0, 1])}), TypeError, "masked"),
    (("missing_barrier", None, {"race": RACE, "schedule": "forward"}), ValueError, "schedule out"),
    (("sequential", None, {"race": "x"}), TypeError, "race must be one of"),
    (("sequential", None, {"dtype": "complex64"}), TypeError, "complex64"),
    (("sequential", None, {"schedule": "sideways"}), ValueError, "forward"),
    (("sequential", None, {"block": 33}), ValueError, "33"),
    (("sequential", None, {"segment_ids": [0]}), ValueError, "takes no segment_ids"),
    (("key_warp", None, {"num_segments": 3}), ValueError, "num_segments needs segment_ids"),
    (("key_warp", 3, {"segment_ids": [0]}), ValueError, "leave n out"),
    (("key_warp", None, {"segment_ids": [0], "values": [1, 2]}), ValueError, "but segment_ids 1"),
    (("key_warp", None, {"segment_ids": [0.5]}), TypeError, "must be integers"),
    (("key_warp", 10, {"dtype": "int32"}), TypeError, "float32, float64"),
    (("key_warp", 10, {"grid": 2}), ValueError, "leave grid out"),
    (("key_warp", 10, {"beside": "sequential"}), ValueError, "takes no segment_ids"),
    (("key_sorted", None, {"segment_ids": [1, 0]}), ValueError, "in ascending order"),
    (("key_warp", None, {"segment_ids": [2], "num_segments": 2}), ValueError, "segment_ids.0. is"),
])  # fmt: skip
def test_wrong_arguments(how, error: type[Exception], words: str):
    name, n, more = (*how, *(None, {})[len(how) - 1 :])
    with pytest.raises(error, match=words):
        gpureduce.replay(name, n, **more)
    assert gpureduce.replay("sequential", 64).is_right


@pytest.mark.parametrize("how", [{"block": 0}, {"block": 33}, {"grid": 0}])
def test_a_wrong_launch_of_a_users_kernel(how: dict[str, int]):
    with pytest.raises(ValueError, match=f"{next(iter(how))} must be"):
        gpureduce.replay(gpureduce.kernel(TREE), 64, **how)


@pytest.mark.parametrize(("method", "how", "error", "words"), [
    ("save", (None,), TypeError, "path must be the name of a file, not None"),
    ("save", (b"page.html",), TypeError, "path must be the name of a file, not b'page.html'"),
    ("save", ("nowhere/page.html",), FileNotFoundError, "no folder nowhere"),
    ("save", ("/dev/full",), OSError, "No space left"),
    ("frame", (1.5,), TypeError, "step must be a whole number"),
    ("frame", (41,), ValueError, "step must be from 0 to 40, not 41"),
    ("film", ("a.gif", 0), ValueError, "seconds must be from 0.01 to 655"),
    ("film", ("a.gif", 1e9), ValueError, "seconds must be from 0.01 to 655"),
    ("film", ("a.gif", 1, 3), TypeError, r"steps must be a list, such as \[3\]"),
    ("film", ("a.gif", 1, []), ValueError, "at least one step"),
])  # fmt: skip
def test_wrong_arguments_of_methods(method: str, how, error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        getattr(gpureduce.replay("sequential", 64), method)(*how)


def test_ctrl_c_ends_a_recording():
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    gc.disable()  # an exception in a callback of the collector, as Hypothesis has, is lost
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            gpureduce.replay("global_tree", 8192, block=256)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        gc.enable()
        signal.signal(signal.SIGALRM, before)
    assert gpureduce.replay("sequential", 64).is_right


def test_json_has_the_documented_fields():
    page = (Path(__file__).parents[2] / "docs" / "replay.md").read_text()
    _, of_all, of_steps = page.replace("| field of a step", "| field").split("| field")
    rows = [re.findall(r"^\| (`.*?) \|", table, re.M) for table in (of_all, of_steps)]
    documented = [set(re.findall(r"`(\w+)`", " ".join(row))) for row in rows]
    shown = gpureduce.replay("cluster", 2048, beside="bulk_copy")
    data = json.loads(shown.to_json())
    assert {*data} == documented[0] and data["schema"] == 1
    both = [*data["steps"], *data["beside"]["steps"]]
    both += json.loads(gpureduce.replay("interleaved_idx", 256).to_json())["steps"]
    assert set().union(*both) == documented[1]
    assert [step["sentence"] for step in data["steps"]] == list(shown.sentences)
    assert [step.get("values", []) for step in data["steps"]] == [[*s.values] for s in shown.steps]


@pytest.mark.parametrize(("n", "name", "most"), [
    (1024, "warp_shfl", 400_000), (4096, "global_tree", 1_000_000),
])  # fmt: skip
def test_a_page_is_one_small_file(n: int, name: str, most: int, tmp_path):
    page = tmp_path / "漢字 <b>.html"
    gpureduce.replay(name, n, block=256).save(page)
    text = page.read_text("utf-8")
    assert len(text) <= most
    assert not re.search(r"https?:|<link|src=|@import|url\(", text)
    shown = gpureduce.replay(name, 64)
    with pytest.raises(ValueError, match=r"\.html"):
        shown.save(tmp_path / "page.txt")
    other = tmp_path / "other.html"
    other.write_text("mine")
    with pytest.raises(FileExistsError, match="force=True"):
        shown.save(other)
    shown.save(other, force=True)


def test_a_page_is_made_in_any_locale(tmp_path):
    code = "import gpureduce; gpureduce.replay('redux', 64).save('page.html')"
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    subprocess.run([sys.executable, "-c", code], env=os.environ | plain, cwd=tmp_path, check=True)
    assert "◀ back" in (tmp_path / "page.html").read_text("utf-8")


def test_a_page_that_would_be_large_says_what_to_take(tmp_path, monkeypatch):
    monkeypatch.setattr(replay, "_MOST_BYTES", 70_000)
    shown = gpureduce.replay("warp_shfl", 1024, block=32)
    with pytest.raises(ValueError, match=r"may have 1 MB, .* 0.1 MB: use n=512 with block=256"):
        shown.save(tmp_path / "page.html")


def test_integers_beyond_those_of_javascript_are_text():
    shown = gpureduce.replay("cascade", values=np.array([2**53, 1]))
    data = json.loads(shown.to_json())
    assert (data["value"], data["elements"]) == ("9007199254740993", [2**53, 1])
    assert "9007199254740993" in str([step.get("values") for step in data["steps"]])


def test_two_runs_are_the_same_to_the_last_byte():
    text = """__device__ int total[3]; __device__ unsigned tickets;
__global__ void k(const int *in, int *out, int n)
{
    atomicAdd(&total[threadIdx.x % 3], in[threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) out[0] = total[0] + total[1] + total[2];
}"""
    made = gpureduce.kernel(text, finishes=True)
    first, second = (gpureduce.replay(made, 64, block=64, grid=1) for _ in range(2))
    assert first.to_json() == second.to_json() and first.is_right
    assert [one.name for one in first.arrays if one.space == "global"] == ["in", "out", "memory"]


def test_what_a_kernel_prints_comes_once(capfd):
    text = """#include <cstdio>
__global__ void k(const int *in, int *out, int n)
{
    if (threadIdx.x == 0) { printf("hello\\n"); out[0] = in[0]; }
}"""
    gpureduce.replay(gpureduce.kernel(text, finishes=True), 1, grid=1)
    assert capfd.readouterr().out.count("hello") == 1


@pytest.mark.parametrize("loop", [
    "while (*(volatile const int *)in > 0) ;", "for (;;) __threadfence();",
    "for (;;) __syncthreads();",
])  # fmt: skip
def test_an_endless_loop_reaches_the_most_steps(loop: str):
    text = f"""__global__ void k(const int *in, int *out, int n)
{{
    {loop}
    out[0] = 1;
}}"""
    with pytest.raises(ValueError, match=r"16,384 steps for n=64 .*or never ends"):
        gpureduce.replay(gpureduce.kernel(text, finishes=True), 64)


def test_a_notebook_shows_the_page_in_a_frame():
    shown = gpureduce.replay("sequential", 64)._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;') and shown.count('"') == 6
    # JupyterLab removes the frame from a notebook that is not trusted, but not its text.
    assert shown.endswith("to watch the replay of sequential: n=64, 41 steps.</iframe>")


def test_a_frame_and_a_film(tmp_path):
    shown = gpureduce.replay("interleaved_idx", 64, block=64)
    svg = shown.frame(6)._repr_svg_()
    assert re.fullmatch(r"<picture of 760 x \d+ pixels>", repr(shown.frame(6)))
    of_readme = gpureduce.replay("interleaved_idx", 256).frame(11).svg()
    root = Path(__file__).parents[2]
    assert (root / "docs" / "replay.svg").read_text() == of_readme
    assert "(docs/replay.svg)](docs/watch.md)" in (root / "README.md").read_text()
    assert shown.sentences[6].partition(",")[0] in svg and svg.count("<rect") > 100
    for state in ("lane 15 of warp 0, executing", "lane 16 of warp 0, masked off",
                  "lane 3 of warp 1, waiting at a barrier"):  # fmt: skip
        assert state in of_readme
    last = shown.frame(len(shown.steps) - 1).svg()
    assert "lane 31 of warp 0, ended" in last and "not started" in shown.frame(0).svg()
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")
    shown.film(tmp_path / "rung.gif", steps=[0, 3, 6])
    shown.film("/dev/null", steps=[0])
    with image.open(tmp_path / "rung.gif") as film:
        assert film.n_frames == 3
    with pytest.raises(ValueError, match=r"\.gif"):
        shown.film(tmp_path / "rung.png")
    with pytest.raises(ValueError, match=r"seconds must be from 0\.01"):
        shown.film(tmp_path / "none.gif", 0, [0])


@pytest.mark.parametrize(("ids", "count", "error", "words"), [
    (np.ma.array([0, 1, 5], mask=[0, 0, 1]), None, TypeError, "1 masked entry, the first at 2"),
    (np.array([2**63 - 1]), None, ValueError, "the largest id plus one, must be from 1"),
    ([0, 0], 0, ValueError, "num_segments must be from 1"),
    ([0, 0], "3", TypeError, "num_segments must be a whole number"),
    ([0, -1], None, ValueError, r"segment_ids\[1\] is -1"),
])  # fmt: skip
def test_wrong_ids(ids, count, error: type[Exception], words: str):
    for call in (gpureduce.replay, gpureduce.explain):
        with pytest.raises(error, match=words):
            call("key_atomic", segment_ids=ids, num_segments=count)
    assert gpureduce.replay("key_atomic", segment_ids=[0, 0], num_segments=True).value == (3,)


def test_a_kernel_of_ones_own_takes_no_ids():
    mine = gpureduce.kernel(
        "__global__ void mine(const int *in, int *out, int n) { if (!threadIdx.x) *out = in[0]; }"
    )
    for call in (gpureduce.replay, gpureduce.explain):
        with pytest.raises(TypeError, match="takes no segment_ids"):
            call(mine, segment_ids=[0, 1])
