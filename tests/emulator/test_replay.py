"""`replay`: its steps, the counts, what the values contain, sentences, files and errors."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import gpureduce
from gpureduce.core import registry
from gpureduce.emulator import replay_steps

LADDER = [
    s.name
    for s in registry.STRATEGIES.values()
    if s.launches_kernels and s.kind not in ("axis", "segments", "keys", "choice")
]
RIGHT = [name for name in LADDER if not registry.STRATEGIES[name].broken]


def dtype_of(name: str) -> str:
    return "float32" if name == "exact" else "int32"


def contained(shown: gpureduce.Replay, number: int) -> list[int]:
    """The elements of a set."""
    return [first + step * i for first, step, count in shown.parts[number].runs()
            for i in range(count)]  # fmt: skip


@pytest.mark.parametrize("name", LADDER)
def test_the_counters_are_those_of_explain(name: str):
    # What `exact` does depends on the numbers, and explain takes zeros.
    values = np.zeros(1003) if name == "exact" else np.ones(1003, np.int32)
    shown = gpureduce.replay(name, values=values, block=128, dtype=dtype_of(name))
    told = gpureduce.explain(name, n=1003, block=128, dtype=dtype_of(name), sample=False)
    total = dict.fromkeys(shown.counters, 0)
    for kernel in told.kernels:
        for counter, count in (kernel.counters | kernel.details).items():
            total[counter] += count
    assert shown.counters == total


@pytest.mark.parametrize("name", LADDER)
def test_each_value_is_the_sum_of_the_elements_that_it_is_said_to_contain(name: str):
    """For `exact`, up to the step from which on that is not known."""
    shown = gpureduce.replay(name, 1003, block=128, dtype=dtype_of(name))
    elements, known = np.array(shown.elements), 0
    for step in shown.steps[: shown.unknown]:
        for parts, values in ((step.parts, step.values), (step.result_parts, step.results)):
            for part, value in zip(parts, values, strict=bool(parts)):
                if part is None or shown.parts[part].twice or shown.parts[part].foreign:
                    continue
                total = elements[contained(shown, part)].sum()
                assert total in (np.sum(value), np.ravel(value)[0])  # or beside a mark
                known += 1
    assert known > (100 if name != "exact" else 0)


@pytest.mark.parametrize("name", [name for name in RIGHT if name != "exact"])
def test_the_last_value_contains_every_element_once(name: str):
    shown = gpureduce.replay(name, 1003, block=128)
    assert shown.is_right and shown.unknown is None and shown.value == shown.expected
    stores = [step for step in shown.steps if step.kind in ("store", "atomic")
              and shown.arrays[step.array].space == "global"]  # fmt: skip
    sets = [shown.parts[part] for step in stores
            for part in step.result_parts or step.parts if part is not None]  # fmt: skip
    whole = [one for one in sets if len(one) == 1003]
    assert whole and not any(one.twice or one.foreign for one in whole)


def test_an_element_that_is_left_out_is_not_in_the_sum():
    shown = gpureduce.replay("missing_barrier", 256, block=128)
    assert not shown.is_right
    last = [step for step in shown.steps if step.kind == "store"][-1]
    missing = set(range(256)) - set(contained(shown, last.parts[0]))
    assert sum(shown.elements[i] for i in missing) == shown.expected - shown.value > 0


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


@pytest.mark.parametrize(("text", "repeated", "foreign"), [(TWICE, [(3, 1, 1)], False),
                                                           (FOREIGN, [], True)])  # fmt: skip
def test_what_a_wrong_sum_contains(text: str, repeated: list[tuple[int, int, int]], foreign: bool):
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
        "Line 21: lanes 0 to 31 give a value to the others by __shfl_down_sync().",
        "Line 23: lane 0 writes shared[0], no conflict.",
    ]),
    ("atomic_thread", {"n": 64}, [
        "Line 14: lanes 0 to 31 of warp 0 update out[0], one after another."]),
    ("vector_load", {"n": 256, "dtype": "float64"}, [
        "lanes 0 to 31 of warp 0 of block 0 read in[0..63], 16 sectors of 32 bytes, all used."]),
])  # fmt: skip
def test_sentences(name: str, how: dict[str, object], wanted: list[str]):
    shown = gpureduce.replay(name, **how)
    assert [one for one in wanted if one not in "\n".join(shown.sentences)] == []


def test_a_step_of_another_blocks_shared_memory_names_the_block():
    shown = gpureduce.replay("cluster", 2048, block=64)
    assert any(re.search(r"read shared\[0\] of block [1-7]", one) for one in shown.sentences)


def test_shuffles_tell_which_lane_they_read():
    shown = gpureduce.replay("warp_shfl", 32, block=32)
    step = next(step for step in shown.steps if step.kind == "__shfl_down_sync")
    assert step.sources == (*range(16, 32), *range(16, 32))
    assert step.results[:16] == tuple(step.values[16:32])


@pytest.mark.parametrize("order", ["forward", "reverse", "random 3"])
def test_other_orders_of_threads(order: str):
    shown = gpureduce.replay("sequential", 256, schedule=order)
    assert shown.is_right and shown.schedule == order
    assert shown.counters == gpureduce.replay("sequential", 256).counters


@pytest.mark.parametrize("dtype", ["int8", "uint16", "float16", "float64", "bool"])
def test_dtypes(dtype: str):
    shown = gpureduce.replay("cascade", 200, dtype=dtype)
    assert shown.is_right and shown.dtype == dtype
    if dtype != "bool":  # too few values to tell elements apart
        assert shown.unknown is None and any(len(one) == 200 for one in shown.parts)


FAULT = "__global__ void far(const int *in, int *out, int n) { out[0] = in[threadIdx.x + 99999]; }"


def test_a_failing_kernel_is_shown_up_to_its_fault():
    shown = gpureduce.replay(gpureduce.kernel(FAULT), 64)
    assert shown.fault == "line 1: thread 0 reads in[99999]; in has 64 elements"
    assert shown.value is None and shown.steps and shown.fault in str(shown)


def test_an_access_behind_an_array_is_named_by_the_array():
    text = FAULT.replace("99999", "1")
    shown = gpureduce.replay(gpureduce.kernel(text), 32, block=32)
    assert shown.start == len(shown.steps) - 1 and "in[1..32]" in shown.sentences[shown.start]
    assert shown.counters["global_load_requests"] == 1


@pytest.mark.parametrize(("values", "dtype", "total"), [
    ([0.5, 0.25], "float32", 0.75), (np.array([3, -4], np.int8), "int8", -1),
    ([2**31 - 1, 1], "int32", -(2**31)),
])  # fmt: skip
def test_values_keep_their_dtype(values, dtype: str, total: float):
    shown = gpureduce.replay("cascade", values=values)
    assert shown.dtype == dtype and shown.is_right and shown.value == total


def test_two_side_by_side_have_the_same_elements():
    shown = gpureduce.replay("interleaved_idx", beside="sequential", values=[3, 1, 4, 1, 5] * 50)
    assert shown.beside.elements == shown.elements and shown.value == shown.beside.value == 700


def test_a_race_is_shown_in_both_orders():
    found = gpureduce.races("missing_barrier", block=128)
    how = {"block": found.block, "race": found.races[0]}
    first = gpureduce.replay("missing_barrier", found.n, **how)
    assert first.marks[0] < first.marks[1] and first.beside.marks[0] > first.beside.marks[1]
    assert first.is_right != first.beside.is_right  # in one order, the sum comes out right
    for shown in (first, first.beside):
        kinds = [(shown.steps[i].kind, shown.steps[i].line) for i in shown.marks]
        line = found.races[0].sides[0].place.line
        assert kinds == [("load", line), ("store", line)] and shown.start == min(shown.marks)
        assert "__syncthreads() is missing" in shown.race
    with pytest.raises(ValueError, match="leave beside out"):
        gpureduce.replay("missing_barrier", found.n, beside="sequential", **how)
    with pytest.raises(ValueError, match="n and block"):
        gpureduce.replay("sequential", 64, race=found.races[0])


@pytest.mark.parametrize(("how", "error", "words"), [
    (("row_warp",), ValueError, "sums along an axis"),
    (("numpy",), ValueError, "runs on the processor"),
    (("fast",), ValueError, "picks another strategy"),
    (("sequential", 0), ValueError, "n must be from 1"),
    (("sequential", 10, {"values": [1]}), ValueError, "leave n out"),
    (("sequential", None, {"values": [[1]]}), ValueError, "list of numbers"),
    (("sequential", 2**20), ValueError, "more than 65,536 steps .* take n=65,536 or less"),
    (("sequential", None, {"values": [0.5], "dtype": "int32"}), ValueError, "values.0. is 0.5"),
    (("sequential", None, {"values": ["a"]}), TypeError, "must be numbers"),
    (("sequential", None, {"race": "x"}), TypeError, "race must be one of"),
    (("sequential", None, {"dtype": "complex64"}), TypeError, "complex64"),
    (("sequential", None, {"schedule": "sideways"}), ValueError, "forward"),
    (("sequential", None, {"block": 33}), ValueError, "33"),
])  # fmt: skip
def test_wrong_arguments(how, error: type[Exception], words: str):
    name, n, more = (*how, *(None, {})[len(how) - 1 :])
    with pytest.raises(error, match=words):
        gpureduce.replay(name, n, **more)
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


@pytest.mark.parametrize(("n", "block", "most"), [(1024, 256, 400_000), (4096, 256, 1_000_000)])
def test_a_page_is_one_small_file(n: int, block: int, most: int, tmp_path):
    for name in ("global_tree", "warp_shfl"):
        gpureduce.replay(name, n, block=block).save(tmp_path / "page.html")
        text = (tmp_path / "page.html").read_text()
        assert len(text) <= most
        assert not re.search(r"https?:|<link|src=|@import|url\(", text)
    with pytest.raises(ValueError, match=r"\.html"):
        gpureduce.replay(name, 64).save(tmp_path / "page.txt")


def test_a_notebook_shows_the_page_in_a_frame():
    shown = gpureduce.replay("sequential", 64)._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;') and shown.count('"') == 6


def test_a_frame_and_a_film(tmp_path):
    shown = gpureduce.replay("interleaved_idx", 64, block=64)
    svg = shown.frame(6).svg()
    of_readme = gpureduce.replay("interleaved_idx", 256).frame(11).svg()
    assert (Path(__file__).parents[2] / "docs" / "replay.svg").read_text() == of_readme
    assert shown.sentences[6].partition(",")[0] in svg and svg.count("<rect") > 100
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")
    shown.film(tmp_path / "rung.gif", steps=[0, 3, 6])
    with image.open(tmp_path / "rung.gif") as film:
        assert film.n_frames == 3
    with pytest.raises(ValueError, match=r"\.gif"):
        shown.film(tmp_path / "rung.png")


def test_a_recording_stops_at_the_most_steps(monkeypatch):
    monkeypatch.setattr(replay_steps, "MOST_STEPS", 50)
    with pytest.raises(ValueError, match="take n="):
        gpureduce.replay("sequential", 1000)
    monkeypatch.undo()
    assert gpureduce.replay("sequential", 1000).is_right
