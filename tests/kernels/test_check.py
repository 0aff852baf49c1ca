"""The verdict: wrong sums and the elements behind them, races, counts, hints; and its forms."""

from __future__ import annotations

import dataclasses
import html.parser
import json
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

import gpureduce
from gpureduce.kernels import replaying, trials
from user_kernels import FIVE, TREE, TREE_OF_INTEGERS, alone, plain, some

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no compiler")


def test_a_right_kernel():
    verdict = gpureduce.check(TREE)
    assert verdict and verdict.right and verdict.dtypes == ("int32", "float32")
    assert not verdict.failures and verdict.races is None and verdict.tried > 500
    assert verdict.comparison.nearest.name in ("sequential", "unroll_tail")
    assert verdict.hint[0] == "first_add"
    assert "nothing wrong found" in str(verdict)
    assert gpureduce.check(TREE, "int32", hint=False, blocks=64).hint is None


def test_the_loop_is_quick():
    text = TREE.replace("my_rung", f"rung_{time.time_ns()}")
    first = gpureduce.check(text, "int32")
    again = gpureduce.check(text, "int32", blocks=64)
    assert first and again
    assert first.compile_s < 5 and first.seconds < 15  # 0.3 and 1 s on a quiet core
    assert again.compile_s < 0.5


def test_a_ticket_that_is_not_left_at_zero():
    """A first sum is right, and a second one in the same process is not."""
    text = gpureduce.source("last_block").text
    left = text.replace("atomicInc(ticket, gridDim.x - 1)", "atomicAdd(ticket, 1u)")
    assert left != text
    verdict = gpureduce.check(left, "int32", blocks=64)
    assert not verdict.right and "a second sum with the same scratch" in verdict.failures[0].fault


@pytest.mark.parametrize(
    ("name", "said"),
    some([
        ("no barrier", ["reverse order", "missing: __sync"]),
        ("+=", ["lockstep order", "block 0, thread", "block 1, thread"]),
        ("shifted", ["Wrong for n = 2,", "element 0 was left out; element 1 was added twice",
                     "shifted: no race in 2 orders of threads"]),
        ("halves", ["right for blocks that are powers of two", "Wrong for 96, 160",
                    "24, 12, 6, 3, 1"]),
        ("no test", ["right where n fills its blocks", "thread 4 reads in[4]; in has 1 element"]),
    ], 2),
)  # fmt: skip
def test_the_five_wrong_kernels_of_the_documentation(name, said):
    found = str(gpureduce.check(FIVE[name], hint=False))
    assert all(text in found for text in said), found


@pytest.mark.parametrize(
    ("bug", "n", "elements"),
    some([
        ("i < n && (n < 200 || i % 64)", 200, "elements 0, 64, 128, 192 were left out"),
        ("i < n && i != 70", 71, "element 70 was left out"),
        ("i + 1 < n", 1, "element 0 was left out"),
    ], 3),
)  # fmt: skip
def test_elements_that_are_left_out(bug, n, elements):
    verdict = gpureduce.check(TREE.replace("i < n ?", f"{bug} ?"), "int32", blocks=32)
    failure = verdict.failures[0]
    assert (failure.case.n, failure.elements) == (n, elements)
    assert f"n = {n}, block = 32, int32" in str(verdict) and elements in str(verdict)


def test_elements_that_are_added_twice():
    body = "if (i < n) atomicAdd(out, in[i]); if (i == 40 && i < n) atomicAdd(out, 2 * in[i]);"
    head = "size_t i = blockIdx.x * blockDim.x + threadIdx.x; "
    made = gpureduce.kernel(plain(head + body), blocks=64)
    verdict = gpureduce.check(made)
    failure = verdict.failures[0]
    assert failure.counted == ((40, 3),)
    assert "element 40 was added 3 times" in str(verdict)
    replay = replaying.failing(made, verdict)
    assert (replay.n, replay.block) == (failure.case.n, failure.case.block)
    assert not replay.is_right and max(replay.elements) == 9
    assert replay.steps[replay.start].lanes == (8,)


def test_a_replay_opens_where_an_element_is_lost_or_added_twice():
    made = gpureduce.kernel(
        TREE_OF_INTEGERS, blocks=96
    )  # 96 threads: 48, 24, 12, 6, 3, 1 leaves out a word
    lost = replaying.failing(made, gpureduce.check(made))
    assert lost.block == 96 and lost.sentences[lost.start].startswith(
        "Line 8: lanes 0 to 2 of warp 0 write s[0..2]"
    )
    again = "if (half == 1 && t == 0) s[0] += s[1];"
    made = gpureduce.kernel(
        TREE_OF_INTEGERS.replace("        __sync", f"        {again}\n        __sync"), blocks=64
    )
    twice = replaying.failing(made, gpureduce.check(made))
    assert twice.sentences[twice.start].startswith("Line 9: lane 0")
    assert "writes s[0]" in twice.sentences[twice.start]


def test_a_constant_is_no_sum_of_elements():
    verdict = gpureduce.check(plain("if (threadIdx.x + blockIdx.x == 0) out[0] = 42;"), blocks=64)
    assert not verdict.right and verdict.failures[0].counted == ()


@pytest.mark.parametrize(
    ("dtype", "body", "numbers"),
    [
        ("float", "if (in[i] == in[i]) sum += in[i];", "nan"),
        ("float", "sum += in[i] < 0 ? -in[i] : in[i];", "cancellation"),
    ],
)
def test_numbers_that_are_special(dtype, body, numbers):
    text = plain(
        "if (threadIdx.x + blockIdx.x) return;\nfloat sum = 0;\n"
        f"for (size_t i = 0; i < n; i++) {{ {body} }}\nout[0] = sum;",
        dtype,
    )
    verdict = gpureduce.check(text, blocks=64)
    assert verdict.failures[0].case.numbers == numbers


def test_integers_that_wrap_around():
    text = plain(
        "if (threadIdx.x + blockIdx.x) return;\nlong long sum = 0;\n"
        "for (size_t i = 0; i < n; i++) sum += in[i];\n"
        "out[0] = sum > 2147483647 ? 2147483647 : sum < -2147483647 ? -2147483647 : (int)sum;",
        "int",
        "int",
    )
    assert not gpureduce.check(text, blocks=64).right


@pytest.mark.parametrize(("adds_in", "right"), [("double", True), ("float", False)])
def test_floats_are_held_against_a_bound(adds_in, right):
    text = plain(
        f"if (threadIdx.x + blockIdx.x) return;\n{adds_in} sum = 0;\n"
        "for (size_t i = 0; i < n; i++) sum += in[i];\nout[0] = sum;",
        "float",
        "double",
    )
    assert gpureduce.check(text, blocks=64).right is right


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("if (n == 97) out[1] = 1;", "writes out[1]; out has 1 element"),
        ("if (in[n + 8] == 1) return;", "reads in["),
        ("if (n > 40) *(volatile int *)8 = 1;", "is in no array of the kernel"),
        ("if (n > 40) out[1000000000000] = 1;", "accesses an address outside all memory"),
        (
            "if (n > 40) atomicAdd(&out[1000000000000], 1);",
            "accesses an address outside all memory",
        ),
        ("if (n > 40) atomicAdd(out + 9, 1.0f);", "out[9]; out has 1 element"),
        ("volatile char big[100000]; big[0] = big[99999] = 0;", "stack overflow"),
        ("if (n > 200) while (true) __syncthreads();", "it took more than"),
        ("if (n > 100) exit(3);", "with status 3, as exit() does"),
        ("if (n > 100) abort();", "signal 6"),
    ],
)
def test_a_hostile_kernel(body, message):
    verdict = gpureduce.check(alone(body), blocks=64)
    assert not verdict and message in verdict.failures[0].fault
    if any(words in message for words in ("in[", "out[9]", "no memory", "outside all memory")):
        assert verdict.failures[0].fault.startswith("line 2: thread ")
    assert "cudaLaunchKernelExC" not in str(verdict)
    nothing_is_left = gpureduce.sum(np.ones(99, np.int32), gpureduce.kernel(TREE))
    assert nothing_is_left == 99


def test_a_fault_in_an_atomic_while_counting_names_the_kernels_line():
    store = "out[blockIdx.x] = partial[0];"
    text = TREE.replace(store, "atomicAdd(out + blockIdx.x, partial[0]);")
    text = "// gpureduce: finishes=yes\n" + text
    with pytest.raises(gpureduce.CudaError) as error:
        gpureduce.explain(gpureduce.kernel(text), n=5000)
    assert "\nline 15: thread 0 of block " in str(error.value)
    assert "out[" in str(error.value) and "out has 1 element" in str(error.value)


def test_a_split_barrier_and_a_deadlock():
    verdict = gpureduce.check(gpureduce.source("divergent_barrier").text, "int32", blocks=64)
    assert verdict.races.barriers and "part of a block misses a barrier" in verdict.headline
    text = alone("if (threadIdx.x % 32) __syncthreads(); else __syncwarp();")
    dead = gpureduce.check(text, blocks=64)
    assert "deadlock" in dead.failures[0].fault


def test_a_kernel_that_prints():
    text = alone('if (threadIdx.x == 0 && n == 97) printf("n is %d\\n", int(n));')
    quiet = gpureduce.check(text, blocks=64)
    assert "n is 97\n" in quiet.printed and "The kernel printed" in str(quiet)
    loud = alone('while (n > 100) printf("0123456789\\n");')
    loud = gpureduce.kernel(loud, limits=gpureduce.Limits(seconds=1), blocks=64)
    loud = gpureduce.check(loud)
    assert not loud and len(loud.printed) <= 1 << 16 < loud.printed_bytes
    assert f"({loud.printed_bytes:,} bytes in all)" in str(loud) and len(str(loud)) < 4000


def test_json_and_html():
    verdict = gpureduce.check(gpureduce.source("missing_barrier").text, ["int32"], blocks=256)
    plainly = json.loads(verdict.to_json())
    assert plainly["passes"] is False and plainly["failures"][0]["n"] == 4
    assert plainly["races"]["races"][0]["missing"] == "__syncthreads()"
    assert plainly["nearest"] and plainly["counters"]["block_barriers"] == 514
    page = verdict._repr_html_()
    assert "<svg" in page and "missing here: __syncthreads()" in page
    open_tags: list[str] = []

    class Reader(html.parser.HTMLParser):
        def handle_starttag(self, tag, attrs):
            open_tags.append(tag)

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

        def handle_startendtag(self, tag, attrs):
            pass

    Reader().feed(page.replace("<br>", ""))
    assert not open_tags


def test_sizes_stand_around_every_border():
    subject = trials.Subject(gpureduce.kernel(TREE).loaded([]), "int32", 5, 0, 0, "")
    tried = {(case.block, case.n) for case in trials.cases(subject)}
    for block in (32, 96, 160, 1024):
        assert {(block, block + away) for away in (-1, 0, 1)} <= tried
        assert {(block, 2 * block + away) for away in (-1, 0, 1)} <= tried
    orders = {case.order.split()[0] for case in trials.cases(subject)}
    assert orders == {"forward", "reverse", "random", "lockstep"}


def test_another_seed_tries_other_sizes():
    subject = trials.Subject(gpureduce.kernel(TREE).loaded([]), "int32", 5, 0, 0, "")
    first, again, other = ({c.n for c in trials.cases(subject, seed)} for seed in (0, 0, 1))
    assert first == again and len(other - first) > 5
    n = min(n for n in other - first if n > 2000)
    text = TREE.replace("i < n ?", f"i < n && n != {n} ?")
    made = gpureduce.kernel(text, blocks=trials.BLOCKS[n % len(trials.BLOCKS)])
    assert gpureduce.check(made, "int32") and not gpureduce.check(made, "int32", seed=1)


def test_every_dtype():
    names = [name for name in gpureduce.kernel(TREE).dtypes if name != "bfloat16"]
    assert len(names) == 12
    verdict = gpureduce.check(TREE, names[1::6], blocks=64)
    assert verdict and verdict.dtypes == tuple(names[1::6])
    wrong = gpureduce.check(TREE.replace("i < n ?", "i + 1 < n ?"), names[::6], blocks=64)
    assert [f.case.dtype for f in wrong.failures] == names[::6]
    assert all(f.case.n <= 4 and f.elements.endswith("left out") for f in wrong.failures)


@pytest.mark.parametrize(
    ("rung", "hint"),
    some(
        [
            ("atomic_thread", "atomic_block"),
            ("interleaved_mod", "interleaved_idx"),
            ("interleaved_idx", "sequential"),
            ("sequential", "first_add"),
            ("first_add", "cascade"),
            ("cascade", "warp_shfl"),
            ("warp_shfl", "vector_load"),
            ("vector_load", "last_block"),
            ("tiles", None),
        ],
        every=5,
    ),
)
def test_hints_lead_up_the_ladder(rung, hint):
    verdict = gpureduce.check(gpureduce.source(rung).text, "int32")
    assert verdict.comparison.nearest.name == rung and not verdict.comparison.changes
    assert (verdict.hint and verdict.hint[0]) == hint


def test_a_tree_in_global_memory_is_sent_to_shared_memory():
    text = gpureduce.source("global_tree").text
    verdict = gpureduce.check(gpureduce.kernel(text, scratch="thread"), "int32", blocks=64)
    assert verdict and verdict.hint[0] == "interleaved_mod"


def test_the_nearest_rung_is_that_of_most_counters():
    """One counter that a rung does not have at all does not outweigh the others."""
    many = TREE.replace(
        "partial[tid] = i < n ? Acc(in[i]) : Acc(0);",
        "Acc sum = 0; for (; i < n; i += size_t(gridDim.x) * blockDim.x) sum += Acc(in[i]);"
        " partial[tid] = sum;",
    )
    verdict = gpureduce.check(many, "int32", blocks=64)
    assert verdict and verdict.comparison.nearest.name == "cascade"
    assert "my_rung (yours, " in " ".join(str(verdict).split())
    assert "warps at barriers" in verdict.counts() and "in all" in verdict.counts()


def test_a_small_difference_is_told_as_such():
    """One of 33 barriers more is not "1.03 times as many"."""
    more = TREE.replace("out[blockIdx.x] =", "__syncwarp(1); out[blockIdx.x] =")
    own = gpureduce.check(more, "int32", blocks=64).comparison
    for theirs, said in ((2049, "has 2 more loads (2,051, and 2,049 there)"),
                         (2053, "has 2 fewer loads (2,051, and 2,053 there)"),
                         (1000, "has 2.05 times as many loads"),
                         (5000, "has 2.44 times fewer loads")):  # fmt: skip
        assert said in dataclasses.replace(own, changes=(("loads", theirs, 2051),)).sentence


def test_a_read_behind_the_last_element_is_named():
    """Only the sizes whose last element ends at a multiple of 16 bytes fault: they are shown."""
    verdict = gpureduce.check(TREE.replace("Acc(in[i])", "Acc(in[i]) + Acc(in[i + 1])"), blocks=64)
    assert len(verdict.failures) == 2
    for failure in verdict.failures:
        assert failure.case.n == 4 and "reads in[4]; in has 4 elements" in failure.fault


def test_a_kernel_that_does_not_end():
    text = plain("while (n) if (threadIdx.x > 40) out[0] = n;")
    verdict = gpureduce.check(gpureduce.kernel(text, limits=gpureduce.Limits(seconds=1)))
    assert verdict.headline == "f: gave no result" and verdict.failures[0].ended
    assert "No result for n = 1, block = 32," in str(verdict)


def test_the_documentation_shows_the_five_kernels():
    page = Path(__file__).resolve().parents[2] / "docs" / "other_tools.md"
    shown = re.findall(r"^```c\n(.*?)^```", page.read_text(), re.M | re.S)
    assert shown == list(FIVE.values())


def _before_the_store(lines: str) -> str:
    return TREE.replace("    if (tid == 0)", f"{lines}\n    if (tid == 0)")


_ENDED = {
    "in the if": TREE.replace("blockDim.x)\n", "blockDim.x) {\n").replace(
        "        __syncthreads();\n    }", "        __syncthreads();\n        }\n    }"
    ),
    "forty threads": _before_the_store("    if (tid < 40)\n        __syncthreads();"),
    "half a warp": _before_the_store("    if (tid > 15)\n        return;\n    __syncthreads();"),
}


@pytest.mark.parametrize("name", some(_ENDED, 2))
def test_threads_that_end_without_their_warps_barrier(name):
    """As if they had arrived: the sums are right on the emulator, and on today's cards."""
    verdict = gpureduce.check(_ENDED[name], "int32", device="emulator", blocks=64)
    assert verdict.right and not verdict, str(verdict)
    (barrier,) = verdict.races.barriers
    assert barrier.ended and "have ended" in str(barrier) and "never reaches" in str(barrier)
    assert not {t // 32 for t in barrier.ended} - {t // 32 for row in barrier.threads for t in row}


def test_whole_warps_may_return_before_a_barrier():
    text = _before_the_store("    if (tid >= 32)\n        return;\n    __syncthreads();")
    assert gpureduce.check(text, "int32", device="emulator", blocks=64)


def test_a_replay_of_a_kernel_for_a_large_constant_shows_fewer_elements():
    text = """#define N 1048576
__global__ void k(const int *in, int *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < N - 1; i += blockDim.x * gridDim.x) atomicAdd(out, in[i]);
}"""
    made = gpureduce.kernel(text, sizes=1048576)
    assert replaying.failing(made, gpureduce.check(made)).n <= 2**13
