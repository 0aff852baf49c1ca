"""explain: counts that follow on paper, samples that stand for all blocks, and clear errors."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import gpureduce
from cases import BROKEN, KERNELS
from gpureduce import (
    _emulator_traced,
    _ncu,
    _registry,
    _text,
    cli,
    pictures,
    verify_counters,
)
from gpureduce._explain import COUNTERS, explain

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


def test_as_the_hardware_counted():
    """Nsight Compute's figures for 2^24 elements in blocks of 256 on an H200."""
    mod = explain("interleaved_mod", n=2**24).counters
    idx = explain("interleaved_idx", n=2**24).counters
    assert mod["shared_load_wavefronts"] - mod["shared_load_conflicts"] == 6_225_920
    assert idx["shared_load_wavefronts"] - idx["shared_load_conflicts"] == 1_638_400
    assert (mod["shared_load_conflicts"], idx["shared_load_conflicts"]) == (0, 4_587_520)
    assert mod["global_load_sectors"] == idx["global_load_sectors"] == 2_097_152
    per_block = explain("interleaved_mod", n=256).counters
    assert per_block["shared_load_wavefronts"] == 95
    assert explain("interleaved_idx", n=256).counters["shared_load_instructions"] == 25


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
    assert explain("tiles", n=n, grid=grid).counters["fences"] == grid
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


@pytest.mark.parametrize("block", [32, 96, 256, 1024])
@pytest.mark.parametrize("strategy", KERNELS)
def test_samples_stand_for_all_blocks(strategy, block):
    for n in sizes(block):
        one, all_ran = (explain(strategy, n=n, block=block, sample=s) for s in (True, False))
        assert everything(one) == everything(all_ran), n
        assert not all_ran.sampled


@pytest.mark.parametrize("strategy", [s for s in KERNELS if s not in TREES])
def test_samples_of_grids_that_are_asked_for(strategy):
    alone = _registry.find(strategy).traits & _emulator_traced.ALONE
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


def test_who_is_active_step_by_step():
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
            assert re.fullmatch(r"csrc/kernels/(common\.h|\w+\.cu)", line.file), line.file
            assert line.text, line.place
        texts = {line.text for line in found.lines}
        wanted = {
            "interleaved_idx": "partial[index] += partial[index + stride];",
            "atomic_thread": "atomicAdd(out, Acc(in[i]));",
            "last_block": "__threadfence();",
            "tiles": "drawn = draw_ticket(ticket, gridDim.x - 1);",
            "warp_shfl": "sum += __shfl_down_sync(0xffffffffu, sum, offset);",
        }
        assert wanted[strategy] in texts


def test_the_schedule_makes_no_difference():
    plain = everything(explain("last_block", n=40_000))
    with gpureduce.emulator.schedule("random", seed=3):
        assert everything(explain("last_block", n=40_000)) == plain


def test_later_launches_are_counted_apart():
    found = explain("sequential", n=2**20)
    assert [kernel.grid for kernel in found.kernels] == [4096, 16, 1]
    assert found.counters == found.kernels[0].counters
    assert found.total["block_barriers"] == 9 * (4096 + 16 + 1)
    assert len(explain("sequential", n=2**20, finish="host").kernels) == 1
    assert len(explain("last_block", n=2**20).kernels) == 1


# --- comparing and showing ------------------------------------------------------------------------


def test_comparison():
    both = explain("interleaved_idx", "sequential", n=2**16)
    assert isinstance(both, gpureduce.Comparison)
    fell = {change.name: change for change in both.fell}
    assert fell["shared_load_conflicts"].after == 0
    assert fell["shared_load_conflicts"].factor is None
    assert fell["shared_load_wavefronts"].factor == pytest.approx(95 / 25)
    assert both.lesson == _registry.find("sequential").lesson
    assert both.lesson in str(both) and "3.8x less" in str(both)
    assert not explain("sequential", "sequential", n=1000).changes
    back = explain("sequential", "interleaved_idx", n=2**16)
    assert not back.fell and {c.name for c in back.rose} == set(fell)


def test_text():
    text = str(explain("interleaved_idx", n=2**20))
    assert "interleaved_idx.cu:23" in text and "8 wavefronts for one warp instruction" in text
    assert "4,096 blocks of 256 threads (3 of them ran for all)" in text
    for strategy in KERNELS:
        for line in str(explain(strategy, n=5000, block=1024)).splitlines():
            assert len(line) <= 140


def test_wavefront_table_agrees_with_the_count():
    for strategy, dtype in (("interleaved_idx", "int32"), ("interleaved_idx", "float64")):
        for line in explain(strategy, n=1024, dtype=dtype).lines:
            if line.access:
                assert len(_text.wavefront_table(line.access)) == line.access.wavefronts


def test_command_line(capsys):
    assert cli.main(["explain", "sum_idx", "--n", "2^16", "--block", "128"]) == 0
    assert "Worst bank conflict" in capsys.readouterr().out
    assert cli.main(["explain", "sum_idx", "--n", "2^16", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["counters"] == explain("interleaved_idx", n=2**16).counters
    assert cli.main(["explain", "sum_idx", "sum_seq", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lesson"] == _registry.find("sequential").lesson
    assert cli.main(["explain", "cub"]) == 2
    assert "compiled library" in capsys.readouterr().err


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
        (("sequential",), {"n": 0}, ValueError, "n must be at least 1"),
        (("sequential",), {"n": 2**63}, ValueError, "less than 2\\^63"),
        (("sequential",), {"n": 1.5}, TypeError, "integer"),
        (("sequential",), {"block": 33}, ValueError, "multiple of 32"),
        (("sequential",), {"block": 2048}, ValueError, "multiple of 32"),
        (("sequential",), {"grid": 3}, ValueError, "need grid=4096"),
        (("sequential",), {"finish": "single"}, ValueError, "relaunch"),
        (("sequential",), {"n": 2**50}, ValueError, "at most"),
        (("sequential",), {"dtype": "complex64"}, TypeError, "real and their imaginary"),
        (("sequential",), {"dtype": "U4"}, TypeError, "cannot be summed"),
        (("redux",), {"dtype": "float32"}, TypeError, "32-bit integers"),
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


def test_user_may_break_off():
    code = (
        "import gpureduce, signal\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.3)\n"
        "signal.signal(signal.SIGALRM, signal.default_int_handler)\n"
        "try:\n"
        "    gpureduce.explain('interleaved_mod', n=2**26, sample=False)\n"
        "except KeyboardInterrupt:\n"
        "    print(gpureduce.explain('sequential', n=256).counters['block_barriers'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "9\n", done.stderr


# --- pictures -------------------------------------------------------------------------------------


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
        return sum(box.fill == pictures.CONFLICT for box in explain(strategy).picture().boxes)

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


def test_svg_on_the_command_line(tmp_path, capsys):
    path = tmp_path / "idx.svg"
    assert cli.main(["explain", "sum_idx", "sum_seq", "--svg", str(path)]) == 0
    assert ElementTree.fromstring(path.read_text()).tag.endswith("svg")


# --- compilers ------------------------------------------------------------------------------------

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"
CLANG = "-fsanitize=thread -mllvm -tsan-instrument-read-before-write=1"


INCLUDES = [f"-I{CSRC / d}" for d in (".", "emulator/include", "kernels")]


def build_runtime(folder: Path) -> list[Path]:
    """The traced emulator's objects: all but kernels."""
    common = ["-O1", "-g1", "-pthread", "-fPIC", "-DGR_EMULATOR_TRACED", *INCLUDES, "-c"]
    cpp = [str(path) for path in CSRC.glob("emulator/*.cpp")]
    c = [str(path) for path in CSRC.glob("threads/*.c")]
    folder.mkdir()
    subprocess.run(["g++", "-std=c++17", *common, *cpp], check=True, cwd=folder)
    subprocess.run(["gcc", *common, *c], check=True, cwd=folder)
    return sorted(folder.glob("*.o"))


def counted_by(runtime: list[Path], compiler: str, level: str, folder: Path) -> list[str]:
    hooks = CLANG.split() if compiler.startswith("clang") else ["-fsanitize=thread"]
    flags = ["-std=c++17", level, *hooks, "-gdwarf-4", "-g1", "-gz=none", "-fPIC", *INCLUDES]
    source, kernels = ROOT / "tests" / "counted_kernels.cpp", folder / "kernels.o"
    subprocess.run([compiler, *flags, "-c", source, "-o", kernels], check=True)
    program = folder / "counted"
    subprocess.run(["g++", "-pthread", kernels, *runtime, "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=True, timeout=60)
    return sorted(done.stdout.splitlines())


def counted_here() -> list[str]:
    """The same by the installed module."""
    rows = []
    for strategy, grid in {
        "interleaved_idx": None, "unroll_warp": None, "last_block": 12, "vector_load": 3
    }.items():  # fmt: skip
        for line in explain(strategy, n=5000, block=128, grid=grid, sample=False).lines:
            counts = {**line.counters, **line.details}
            numbers = " ".join(str(counts[name]) for name in _emulator_traced.counter_names())
            rows.append(f"{strategy} {line.place} {numbers}")
    return sorted(rows)


@pytest.mark.skipif(not CSRC.exists() or not shutil.which("g++"), reason="no source or compiler")
def test_compilers_and_their_options_make_no_difference(tmp_path):
    """Line by line, whoever compiles the kernels, and however the rest is compiled."""
    runtime = build_runtime(tmp_path / "runtime")
    builds = [("g++", "-O0"), ("g++", "-O1"), ("g++", "-O2"), ("clang++", "-O0")]
    for compiler, level in builds:
        if shutil.which(compiler):
            found = counted_by(runtime, compiler, level, tmp_path)
            assert found == counted_here(), (compiler, level)
    if not shutil.which("clang++"):
        pytest.skip("no clang++: compared g++ at three levels only")


# --- the hardware's counters ----------------------------------------------------------------------


def test_ncu_tables_are_read():
    raw = (
        '==PROF== Connected\n"ID","Kernel Name","a.sum"\n"","","inst"\n"0","void k<1>(int)","1,234"'
    )
    (row,) = _ncu.rows_of(raw)
    assert _ncu.number(row, "a.sum") == 1234 and _ncu.number(row, "Kernel Name") is None
    page = (
        '"Kernel Name","void tree<const unsigned int *, unsigned int>(T1)",\n'
        '"Address","Source","inst_executed"\n"0x0","@!P0  LDS R0, [R11]","16384"\n'
    )
    listings = _ncu.listings_of(page + page.replace("tree<", "other<") + page)
    assert {name: len(found) for name, found in listings.items()} == {"tree": 2, "other": 1}
    assert listings["tree"][1][0]["Source"] == "@!P0  LDS R0, [R11]"


def as_hardware(strategy: str, n: int, block: int) -> tuple[dict[str, int], list]:
    """What a card would tell that did just as the model says."""
    found = explain(strategy, n=n, block=block)
    model = {**found.counters, **found.details}
    seen = {name: model[name] for name in verify_counters.METRICS}
    for kind in ("load", "store"):
        seen[f"shared_{kind}_pipe"] = seen[f"shared_{kind}_wavefronts"]
    opcodes = {
        "shared_load_lanes": "@P0 LDS R1",
        "shared_store_lanes": "STS",
        "global_load_lanes": "LDG.E",
        "global_store_lanes": "STG.E",
        "block_barrier_instructions": "BAR.SYNC",
        "warp_barriers": "NOP",
        "shuffles": "SHFL.DOWN",
        "warp_reductions": "REDUX.SUM",
        "atomics": "REDG.E.ADD",
        "fences": "MEMBAR.SC.GPU",
    }
    code = [
        verify_counters.Instruction(f"  {opcodes[name]} x", model[name], model[name], 0)
        for name in verify_counters.OPCODES
    ]
    return seen, code


def test_verification_finds_what_differs():
    case = verify_counters.Case("unroll_warp", 2**16, 256, 256)
    seen, code = as_hardware("unroll_warp", 2**16, 256)
    table = verify_counters.summarize([(case, seen, code)], "int32")
    assert {row.verdict for row in table.rows} == {"equal"} and not table.differing
    assert [line.text for line in table.predicated] == ["@P0 LDS R1 x"]

    # Noise of the pipe is explained, wavefronts or sectors that are not the model's are not.
    noisy = seen | {"shared_load_conflicts": 7, "shared_load_pipe": seen["shared_load_pipe"] + 7}
    (row,) = [
        r for r in verify_counters.summarize([(case, noisy, code)], "int32").rows if r.difference
    ]
    assert row.verdict == "explained" and "arbitration" in row.why
    for counter in ("shared_load_wavefronts", "global_load_sectors", "shared_load_conflicts"):
        for change in (1, -1):
            wrong = seen | {counter: seen[counter] + change}
            found = verify_counters.summarize([(case, wrong, code)], "int32")
            assert counter in {row.counter for row in found.differing}
    lost = [i for i in code if "BAR" not in i.text]
    found = verify_counters.summarize([(case, seen, lost)], "int32")
    assert [row.counter for row in found.differing] == ["block_barrier_instructions"]
    assert "differs:" in str(found) and "model 6,144, hardware 0" in str(found)


def test_verification_explains_what_the_compiler_merges():
    case = verify_counters.Case("unroll_warp", 2**16, 256, 256)
    seen, code = as_hardware("unroll_warp", 2**16, 256)
    for counter in ("shared_load_instructions", "shared_load_wavefronts", "shared_load_pipe"):
        seen[counter] -= 256
    merged = []
    for one in code:
        if "LDS" in one.text:
            merged.append(verify_counters.Instruction("@P0 LDS x", one.issued, one.lanes - 512, 0))
            merged.append(verify_counters.Instruction("LDS.64 x", 256, 256, 256))
        else:
            merged.append(one)
    table = verify_counters.summarize([(case, seen, merged)], "int32")
    assert not table.differing
    assert {row.counter for row in table.rows if "LDS.64 (256)" in row.why} == {
        "shared_load_instructions", "shared_load_wavefronts", "shared_load_lanes",
    }  # fmt: skip


def test_verification_needs_ncu(monkeypatch, capsys):
    monkeypatch.setattr(_ncu.shutil, "which", lambda name: None)
    assert cli.main(["verify-counters", "--strategies", "sequential", "--sizes", "2^10"]) == 2
    assert "Nsight Compute" in capsys.readouterr().err


RECORD = ROOT / "notebooks" / "data" / "counters_h200.json"
WAVEFRONTS = ROOT / "notebooks" / "data" / "wavefronts_h200.json"


@pytest.mark.skipif(not RECORD.exists(), reason="not measured yet")
def test_record_of_the_counters():
    record = json.loads(RECORD.read_text())
    rows = [dict(zip(record["columns"], row, strict=True)) for row in record["rows"]]
    assert {row["strategy"] for row in rows} == set(KERNELS)
    assert len({row["n"] for row in rows}) >= 3 and len({row["block"] for row in rows}) >= 2
    for row in rows:
        assert row["difference"] == row["hardware"] - row["model"]
        assert row["verdict"] in ("equal", "explained") or row["strategy"] == "grid_sync", row
        if row["counter"].endswith("_conflicts"):
            assert row["difference"] >= 0, row


@pytest.mark.skipif(not RECORD.exists(), reason="not measured yet")
def test_the_model_is_still_the_recorded_one():
    record = json.loads(RECORD.read_text())
    rows = [dict(zip(record["columns"], row, strict=True)) for row in record["rows"]]
    for row in rows:
        if row["n"] > 2**20 or row["block"] != 256 or row["counter"] not in COUNTERS:
            continue
        options = {"n": row["n"], "block": row["block"], "grid": row["grid"]}
        found = explain(row["strategy"], **options)
        wide = row["counter"] in ("shared_load_instructions", "shared_load_wavefronts")
        extra = found.details["cluster_load_instructions"] if wide else 0
        assert found.counters[row["counter"]] + extra == row["model"], row


@pytest.mark.skipif(not WAVEFRONTS.exists(), reason="not measured yet")
def test_wavefronts_are_those_of_the_card():
    record = json.loads(WAVEFRONTS.read_text())
    assert len(record["patterns"]) >= 1000
    for row in record["patterns"]:
        for op in ("load", "store"):
            counted = wavefronts(row["offsets"], row["mask"], row["size"], op == "store")
            measured = row["hardware"][f"{op}_wavefronts"] / record["repeats"]
            conflicts = row["hardware"][f"{op}_conflicts"] / record["repeats"]
            assert counted == (measured, measured - conflicts)
