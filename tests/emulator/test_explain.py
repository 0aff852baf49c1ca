"""gpureduce.explain: its counts, and its text, JSON and pictures."""

from __future__ import annotations

import math
import re
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

import gpureduce
from cases import BROKEN, KERNELS
from gpureduce import _emulator_traced, _host
from gpureduce.core import registry
from gpureduce.core.dtypes import convert
from gpureduce.core.plan import Launch
from gpureduce.emulator import explain_picture, explain_text, trace
from gpureduce.emulator.counts import COUNTERS
from gpureduce.emulator.explain import explain

TREES = [
    "global_tree", "interleaved_mod", "interleaved_idx", "sequential", "unroll_tail", "unroll_warp",
    "first_add", "first_add_unroll_warp", "unroll_full",
]  # fmt: skip


# --- what follows on paper ----------------------------------------------------------------------


def active_warps(steps: list[set[int]]) -> int:
    return sum(len({tid // 32 for tid in step}) for step in steps)


def tree_steps(strategy: str, block: int) -> list[set[int]]:
    """The threads that work in each step, by the lecture's own condition."""
    strides = [2**k for k in range(math.ceil(math.log2(block)))]
    if strategy == "interleaved_mod":
        return [{t for t in range(block) if t % (2 * s) == 0 and t + s < block} for s in strides]
    if strategy == "interleaved_idx":
        return [{t for t in range(block) if 2 * s * t + s < block} for s in strides]
    return [{t for t in range(block) if t < s and t + s < block} for s in reversed(strides)]


@pytest.mark.parametrize("block", [32, 64, 96, 256, 1024])
@pytest.mark.parametrize("strategy", ["interleaved_mod", "interleaved_idx", "sequential"])
def test_tree_on_paper(strategy, block):
    n, warps = 7 * block, block // 32
    steps = tree_steps(strategy, block)
    counters = explain(strategy, n=n, block=block).counters
    assert counters["shared_load_instructions"] == 7 * (2 * active_warps(steps) + 1)
    assert counters["shared_store_instructions"] == 7 * (active_warps(steps) + warps)
    assert counters["shared_load_lanes"] == 7 * (2 * sum(map(len, steps)) + 1)
    assert counters["shared_store_lanes"] == 7 * (sum(map(len, steps)) + block)
    assert counters["block_barriers"] == 7 * (len(steps) + 1)
    assert counters["global_load_requests"] == 7 * warps
    assert counters["global_load_sectors"] == 7 * warps * 4
    assert counters["global_load_bytes_used"] == 4 * n
    assert counters["global_store_requests"] == counters["global_store_sectors"] == 7
    assert counters["warp_barriers"] == counters["shuffles"] == counters["atomics"] == 0
    if strategy != "interleaved_idx":
        assert counters["shared_load_conflicts"] == counters["shared_store_conflicts"] == 0
        assert counters["shared_load_wavefronts"] == counters["shared_load_instructions"]


def test_counters_are_plain():
    found = explain("sequential", n=5000)
    wanted = (
        "shared_load_instructions shared_store_instructions shared_load_wavefronts "
        "shared_store_wavefronts shared_load_conflicts shared_store_conflicts shared_load_lanes "
        "shared_store_lanes global_load_requests global_load_sectors global_load_bytes_used "
        "global_store_requests global_store_sectors block_barriers warp_barriers shuffles atomics "
        "fences"
    ).split()
    for counted in (found, *found.lines, *found.steps, *found.kernels):
        assert type(counted.counters) is dict and set(counted.counters) == set(wanted)
        assert {type(count) for count in counted.counters.values()} == {int}


def test_global_tree_uses_few_of_the_bytes_it_moves():
    """Step by step the active lanes lie further apart: 4 bytes of a 32-byte sector in the end."""
    found = explain("global_tree", n=256)
    requests = 8 + 2 * active_warps(tree_steps("interleaved_mod", 256)) + 1
    assert found.counters["global_load_requests"] == requests
    sectors = 32 + 1
    for stride in (1, 2, 4, 8, 16, 32, 64, 128):
        lanes = range(0, 256, 2 * stride)
        # A sector holds 8 elements; a load goes out per warp.
        sectors += len({(t // 32, t // 8) for t in lanes})
        sectors += len({(t // 32, (t + stride) // 8) for t in lanes})
    assert found.counters["global_load_sectors"] == sectors
    assert found.steps[-1].bytes_used_share == pytest.approx(1 / 8)
    assert found.counters["shared_load_instructions"] == 0


def test_warps_shuffles_atomics_and_fences():
    block, grid, n = 256, 32, 2**20
    shfl = explain("warp_shfl", n=n, grid=grid).counters
    assert shfl["shuffles"] == 5 * (grid * block // 32) + 5 * grid
    assert shfl["shared_store_instructions"] == grid * block // 32
    assert shfl["shared_load_lanes"] == grid * 8
    assert shfl["block_barriers"] == grid
    assert explain("unroll_warp", n=n).counters["warp_barriers"] == 5 * n // block
    assert explain("atomic_thread", n=1000).counters["atomics"] == 1000
    assert explain("atomic_block", n=n, grid=grid).counters["atomics"] == grid
    last = explain("last_block", n=n, grid=grid)
    assert last.counters["atomics"] == grid
    # One before each ticket, and one of each warp of the last block.
    assert last.counters["fences"] == grid + block // 32
    assert explain("tiles", n=n, grid=grid).counters["fences"] == 0
    assert explain("redux", n=n, grid=grid).details["warp_reductions"] == (block // 32 + 1) * grid


def test_16_byte_loads_are_one_request():
    found = explain("vector_load", n=2**20).counters
    assert found["global_load_requests"] == 2**20 // (32 * 4)
    assert found["global_load_sectors"] == 2**20 * 4 // 32
    small = explain("vector_load", n=2**20, input_dtype="int8", dtype="int64").counters
    assert small["global_load_requests"] == 2**20 // (32 * 16)


def test_wide_accumulators_take_two_wavefronts():
    four, eight = (explain("sequential", n=2**14, dtype=d).counters for d in ("int32", "float64"))
    assert four["shared_load_instructions"] == eight["shared_load_instructions"]
    # 16 lanes of 8 bytes fill the banks: warps with more active lanes take two.
    full_warps = 7 * 2 + 0  # strides 128, 64 and 32: 4 + 2 + 1 warps, two loads each
    extra = full_warps * (2**14 // 256)
    assert eight["shared_load_wavefronts"] == four["shared_load_wavefronts"] + extra
    assert eight["shared_load_conflicts"] == 0


def wavefronts(offsets, mask=0xFFFFFFFF, size=4, store=False):
    found = np.array(offsets, np.uint32).tobytes()
    return _emulator_traced.shared_wavefronts(found, mask, size, store)


def test_wavefronts_of_shared_memory():
    lanes = np.arange(32)
    assert wavefronts(4 * lanes) == (1, 1)
    assert wavefronts(0 * lanes) == (1, 1)  # a broadcast
    assert wavefronts(8 * lanes) == (2, 1)
    assert wavefronts(128 * lanes) == (32, 1)
    assert wavefronts(128 * lanes, mask=0b1011) == (3, 1)
    assert wavefronts(132 * lanes) == (1, 1)  # padded by a word
    assert wavefronts(lanes, size=1) == (1, 1)
    assert wavefronts(8 * lanes, size=8) == wavefronts(8 * lanes, size=8, store=True) == (2, 2)
    assert wavefronts(16 * lanes, size=16) == (4, 4)
    assert wavefronts(16 * lanes, size=16, mask=0xFF) == (1, 1)
    # Pairs of lanes that want the same: a load serves twice as many lanes together.
    assert wavefronts(8 * (lanes // 2), size=8) == (1, 1)
    assert wavefronts(8 * (lanes // 2), size=8, store=True) == (2, 2)
    assert wavefronts(16 * (lanes % 2), size=16) == (2, 2)
    for size in (0, 3, 32):
        with pytest.raises(ValueError, match="1, 2, 4, 8 or 16 bytes"):
            wavefronts(4 * lanes, size=size)


# --- samples --------------------------------------------------------------------------------------


def everything(found: gpureduce.Explanation):
    return [
        (
            kernel.counters,
            kernel.details,
            [(line.place, line.counters, line.details) for line in kernel.lines],
            [(step.name, step.counters, step.details, step.lanes) for step in kernel.steps],
        )
        for kernel in found.kernels
    ]


def sizes(block: int) -> list[int]:
    near = [1, 31, 33, block - 1, block, block + 1, 2 * block + 1, 5 * block + 7]
    return [*near, 8192 * 3 + 5, 50_003]


@pytest.mark.parametrize(
    ("strategy", "block"),
    [(name, b) for i, name in enumerate(KERNELS) for b in ((32, 256) if i % 2 else (96, 1024))],
)
def test_samples_stand_for_all_blocks(strategy, block):
    for n in sizes(block):
        one, all_ran = (explain(strategy, n=n, block=block, sample=s) for s in (True, False))
        assert everything(one) == everything(all_ran), n
        assert not all_ran.sampled


@pytest.mark.parametrize("strategy", [s for s in KERNELS if s not in TREES])
def test_samples_of_grids_that_are_asked_for(strategy):
    alone = registry.find(strategy).traits & _host.ALONE
    for grid, n in ((8, 70_001), (24, 3 * 24 * 128 * 4 + 1), (40, 2**16), (72, 12_345)):
        if alone or (strategy == "grid_sync" and grid > 32):
            continue
        options = {"n": n, "block": 128, "grid": None if strategy == "atomic_thread" else grid}
        for dtypes in ({"dtype": "int32"}, {"dtype": "int64", "input_dtype": "int8"}):
            if strategy == "redux" and dtypes["dtype"] != "int32":
                continue
            one = explain(strategy, **options, **dtypes)
            assert everything(one) == everything(
                explain(strategy, **options, **dtypes, sample=False)
            )


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_samples_of_exact(dtype):
    for grid, n in ((None, 1), (None, 50_003), (7, 50_003), (1, 1000), (None, 2**18)):
        options = {"n": n, "dtype": dtype, "block": 128, "grid": grid}
        one = explain("exact", **options)
        assert everything(one) == everything(explain("exact", **options, sample=False))
        assert one.counters["global_load_bytes_used"] >= n * np.dtype(dtype).itemsize


@pytest.mark.parametrize("strategy", TREES)
def test_trees_are_counted_from_a_few_blocks(strategy):
    found = explain(strategy, n=2**30 + 3)
    assert found.sampled
    assert found.kernels[0].ran <= 7


def test_lines_and_steps_add_up():
    for strategy in KERNELS:
        found = explain(strategy, n=20_000, block=128)
        for name in COUNTERS:
            assert sum(line.counters[name] for line in found.lines) == found.counters[name], name
            assert sum(step.counters[name] for step in found.steps) == found.counters[name], name
        for kernel in found.kernels:
            assert (
                kernel.counters["shared_load_wavefronts"]
                >= kernel.counters["shared_load_conflicts"]
            )


def test_active_lanes_of_each_step():
    steps = explain("interleaved_mod", n=2**20, block=64).steps
    assert [step.name for step in steps] == ["0", "1", "2", "3", "4", "5", "6", "7"]
    assert steps[0].lanes == (0xFFFFFFFF, 0xFFFFFFFF)
    assert steps[1].lanes == (0x55555555, 0x55555555)
    assert steps[2].lanes == (0x11111111, 0x11111111)
    assert steps[6].lanes == (1, 0)
    packed = explain("interleaved_idx", n=2**20, block=64).steps
    assert packed[1].lanes == (0xFFFFFFFF, 0)
    warp = explain("unroll_warp", n=2**20, block=64).steps
    assert [step.name for step in warp] == ["0", "1", "1.1", "1.2", "1.3", "1.4", "1.5"]


def test_lines_are_those_of_the_source():
    for strategy in ("interleaved_idx", "atomic_thread", "last_block", "tiles", "warp_shfl"):
        found = explain(strategy, n=50_000)
        for line in found.lines:
            assert re.fullmatch(r"csrc/kernels/(parts/common\.h|\w+\.cu)", line.file), line.file
            assert line.text, line.place
        texts = {line.text for line in found.lines}
        wanted = {
            "interleaved_idx": "partial[index] += partial[index + stride];",
            "atomic_thread": "atomicAdd(out, Acc(in[i]));",
            "last_block": "__threadfence();",
            "tiles": "drawn = atomicInc(ticket, gridDim.x - 1);",
            "warp_shfl": "sum += __shfl_down_sync(0xffffffffu, sum, offset);",
        }
        assert wanted[strategy] in texts


def test_the_schedule_makes_no_difference():
    plain = everything(explain("last_block", n=40_000))
    with gpureduce.emulator.schedule("random", seed=3):
        assert everything(explain("last_block", n=40_000)) == plain


def test_a_cluster_of_sixteen_blocks_is_one_team():
    for grid in (8, 16):
        some = explain("one_cluster", n=2**16, block=128, grid=grid)
        every = explain("one_cluster", n=2**16, block=128, grid=grid, sample=False)
        assert some.counters == every.counters and every.grid == grid
        assert every.kernels[0].ran == 1


def test_later_launches_are_counted_apart():
    found = explain("sequential", n=2**20)
    assert [kernel.grid for kernel in found.kernels] == [4096, 16, 1]
    assert found.counters == found.kernels[0].counters
    assert found.total["block_barriers"] == 9 * (4096 + 16 + 1)
    assert len(explain("sequential", n=2**20, finish="host").kernels) == 1
    assert len(explain("last_block", n=2**20).kernels) == 1


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "error", "said"),
    [
        (("fast",), {}, ValueError, "picks another strategy"),
        (("auto",), {}, ValueError, "picks another strategy"),
        (("cub",), {}, ValueError, "compiled library"),
        (("cpu",), {}, ValueError, "runs on the processor"),
        (("sequential", "numpy"), {}, ValueError, "runs on the processor"),
        (("nothing",), {}, ValueError, "no strategy 'nothing'"),
        (("sequential",), {"n": 0}, ValueError, "n must be from 1"),
        (("sequential",), {"n": 2**63}, ValueError, "to 2\\*\\*63 - 1"),
        (("sequential",), {"n": 1.5}, TypeError, "n must be a whole number"),
        (("sequential",), {"block": 33}, ValueError, "multiple of 32"),
        (("sequential",), {"block": 2048}, ValueError, "multiple of 32"),
        (("sequential",), {"grid": 3}, ValueError, "need grid=4096"),
        (("sequential",), {"finish": "single"}, ValueError, "relaunch"),
        (("sequential",), {"n": 2**50}, ValueError, "at most"),
        (("cascade",), {"grid": 2**31 - 1}, ValueError, "at most 1,048,576"),
        (("cascade",), {"n": 2**62 + 1}, ValueError, "exceed the address space"),
        (
            ("cascade",),
            {"dtype": "float64", "n": 2**61 + 4096},
            ValueError,
            "exceed the address space",
        ),
        (("exact",), {"dtype": "float64", "n": 2**61 + 1}, ValueError, "exceed the address space"),
        (("sequential",), {"dtype": "complex64"}, TypeError, "a complex sum is two real sums"),
        (("sequential",), {"dtype": "U4"}, TypeError, "cannot be summed"),
        (("redux",), {"dtype": "float32"}, TypeError, "32-bit integers"),
        (("exact",), {"dtype": "int32"}, TypeError, "exact sums floats only"),
        (("cascade",), {"shape": (64, 32)}, ValueError, "cascade sums whole arrays: pass n"),
        (("row_thread",), {"n": 2048}, ValueError, "sums along an axis: pass shape"),
        (("row_thread", "cascade"), {"shape": (64, 32)}, ValueError, "cascade sums whole arrays"),
        (("cluster",), {"grid": 12}, ValueError, "multiple of 8"),
    ],
)
def test_errors(arguments, options, error, said):
    with pytest.raises(error, match=said):
        explain(*arguments, **options)
    assert explain("sequential", n=256).counters["block_barriers"] == 9


@pytest.mark.parametrize("strategy", BROKEN)
def test_broken_kernels_are_counted_in_full(strategy):
    found = explain(strategy, n=1000)
    assert not found.sampled
    assert found.counters["global_load_bytes_used"] >= 4000


# --- a whole sum ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "busiest"),
    [("sequential", 1), ("first_add", 2), ("last_block", 10), ("one_block", 64)],
)
def test_a_sum_is_counted_while_it_is_made(name, busiest):
    """The counts are those of `explain`, and the busiest warp is that of the first launch."""
    chosen, array = registry.find(name), np.arange(2**16, dtype=np.int32)
    conversion = convert(array.dtype, "int32")
    launch = Launch(chosen.index, conversion.load, conversion.acc, 256, 0, 0)
    bits, counters, blocks = trace.count_sum(array, launch)
    counted = explain(name, n=2**16, sample=False)
    assert np.frombuffer(bits, np.int32, 1)[0] == array.sum(dtype=np.int32)
    assert {key: counters[key] for key in COUNTERS} == counted.total
    assert blocks == sum(kernel.grid for kernel in counted.kernels)
    assert counters["busiest_warp_requests"] == busiest


def test_the_default_dtype_is_one_that_the_strategy_adds_up():
    for names in (["exact"], ["sequential", "exact"], ["exact", "cascade"]):
        found = gpureduce.explain(*names, n=256)
        found = found if len(names) == 1 else found.after
        assert (found.strategy, found.dtype) == (names[-1], "float32")
    assert gpureduce.explain("exact_levels", shape=(32, 4)).dtype == "float32"
    assert gpureduce.explain("key_warp", segment_ids=[0, 1, 1]).dtype == "float32"
    assert gpureduce.explain("sequential", n=256).dtype == "int32"
    assert gpureduce.races("exact", n=64).dtype == "float32"


def test_one_is_singular():
    text = gpureduce.explain("sequential", n=256, block=256)
    assert "1 block of 256 threads" in str(text) and "1 lane, 1 warp" in text._repr_html_()


def test_comparison():
    both = explain("interleaved_idx", "sequential", n=2**16)
    assert isinstance(both, gpureduce.Comparison)
    fell = {change.name: change for change in both.fell}
    assert fell["shared_load_conflicts"].after == 0
    assert fell["shared_load_conflicts"].factor is None
    assert fell["shared_load_wavefronts"].factor == pytest.approx(95 / 25)
    assert both.lesson == registry.find("sequential").lesson
    told = " ".join(str(both).split())
    assert both.lesson in told and "3.8x less" in told and "0 gone" in told
    many = str(explain("sequential", "warp_shfl"))
    assert "7,961x less" in many and "0.39% less" in many and "new" in many
    assert "2.75x more" in str(explain("sequential", "interleaved_idx"))
    assert not explain("sequential", "sequential", n=1000).changes
    back = explain("sequential", "interleaved_idx", n=2**16)
    assert not back.fell and {c.name for c in back.rose} == set(fell)


def test_text():
    text = str(explain("interleaved_idx", n=2**20))
    assert "interleaved_idx.cu:23" in text and "8 wavefronts where 1 would do" in text
    assert "98,304 wavefronts, 88% conflicts" in text
    assert "4,096 blocks of 256 threads (counted from 3 of them)" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_wavefront_table_agrees_with_the_count():
    for strategy, dtype in (("interleaved_idx", "int32"), ("interleaved_idx", "float64")):
        for line in explain(strategy, n=1024, dtype=dtype).lines:
            if line.access:
                assert len(explain_text.wavefront_table(line.access)) == line.access.wavefronts


def pictures_of(strategy: str):
    return [
        explain(strategy, n=3000, block=1024).picture(),
        explain(strategy, n=100_000, block=64, dtype="float64" if strategy != "redux" else "int32")
        .picture(),
        explain("interleaved_mod", strategy, n=5000).picture(),
    ]  # fmt: skip


@pytest.mark.parametrize("strategy", KERNELS)
def test_pictures_stay_on_their_page(strategy):
    for picture in pictures_of(strategy):
        assert picture.boxes and picture.words
        for box in picture.boxes:
            assert 0 <= box.x <= box.x + box.width <= picture.width
            assert 0 <= box.y <= box.y + box.height <= picture.height
        for words in picture.words:
            # Half the size is a narrow font's width of a character, and more than a wide one's.
            width = 0.62 * words.size * len(words.text)
            left = words.x - {"start": 0.0, "middle": width / 2, "end": width}[words.anchor]
            assert left >= -10 and left + width <= picture.width * 1.05, words.text
        ElementTree.fromstring(picture.svg())


def test_conflicts_stand_out():
    def red(strategy):
        return sum(box.fill == explain_picture.ALARM for box in explain(strategy).picture().boxes)

    assert red("interleaved_idx") == 28  # 32 lanes less the 4 that the first wavefront serves
    assert red("sequential") == red("interleaved_mod") == 0


def test_plot_and_notebook(monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = explain("interleaved_idx", n=2**16)
    ax = found.plot()
    assert len(ax.collections[0].get_paths()) == len(found.picture().boxes)
    assert explain("interleaved_idx", "sequential").plot(ax) is ax
    ax.figure.canvas.draw()
    plt.close("all")
    assert (
        found._repr_html_().startswith("<div><b>interleaved_idx: ")
        and "<svg" in found._repr_html_()
    )
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"gpureduce\[plot\]"):
        found.plot()
