"""Machine code and lines of the source: what nvdisasm prints, joined with what ncu lists."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from cases import KERNELS
from fake_ncu import as_hardware
from gpureduce.core.sources import Place
from gpureduce.emulator.explain import explain
from gpureduce.hardware import machine_code, report, toolkit, verify_counters
from gpureduce.hardware.counters import Case, Instruction, finish_of
from gpureduce.hardware.machine_code import Coded, Missing, functions_of, with_places
from gpureduce.hardware.reasons import _LOOK
from gpureduce.hardware.rows import LINE_COUNTERS, by_line, worst_cases

RECORDED = functions_of((Path(__file__).parent / "nvdisasm_sm90.txt").read_text())
SHARED = re.compile(r"\s*(?:@!?U?P\w+\s+)?(LDS|STS)\b")


def code_of(name: str, block: int | None = None) -> list[Coded]:
    wanted = rf"_Z\d+{name}IPKjj(Lj{block}E)?E"
    (function,) = [code for key, code in RECORDED.items() if re.match(wanted, key)]
    return function


def as_listed(code: list[Coded], padding: int = 3) -> list[Instruction]:
    """The same as ncu shows it: places in the code as addresses, other spaces, other padding."""
    listed = []
    for one in code:
        text = re.sub(r"`\(.*?\)", hex(0x7FE2737E5E40), one.text).replace(".reuse", "")
        guard, rest = text.split(None, 1) if text.startswith("@") else ("", text)
        listed.append(Instruction(f"{guard:5} {rest}", 0, 0, 0))
    while "NOP" in listed[-1].text:
        listed.pop()
    return listed + [Instruction("      NOP", 0, 0, 0)] * padding


def counted(case: Case, code: list[Coded]):
    """Such a listing with the counts of a card that does as the model says, line by line."""
    found = explain(case.strategy, n=case.n, block=case.block, finish=finish_of(case.strategy))
    lines = {(Path(line.file).name, line.line): line.counters for line in found.lines}
    machine, given = as_listed(code), set()
    for i, one in enumerate(code):
        kind = SHARED.match(one.text)
        if not kind or (kind[1], one.place.key) in given:
            continue
        given.add((kind[1], one.place.key))
        op = {"LDS": "load", "STS": "store"}[kind[1]]
        counts = lines.get((one.place.file, one.place.line), {})
        lanes, wavefronts = (counts.get(f"shared_{op}_{w}", 0) for w in ("lanes", "wavefronts"))
        machine[i] = replace(machine[i], issued=9 * wavefronts, lanes=lanes, wavefronts=wavefronts)
    return replace(as_hardware(case), code=machine)


def test_lines_are_read():
    code = code_of("sequential")
    assert len(code) == 64 and code[0].text == "LDC R1, c[0x0][0x28]"
    at = {one.text: (one.place.file, one.place.line) for one in code if SHARED.match(one.text)}
    assert at == {
        "STS [R5], R0": ("sequential.cu", 16),
        "@!P0 LDS R4, [R5]": ("sequential.cu", 21),
        "@!P0 LDS R7, [R0]": ("sequential.cu", 21),
        "@!P0 STS [R5], R4": ("sequential.cu", 21),
        "LDS R5, [UR4]": ("sequential.cu", 26),
    }


def test_inlined_code_belongs_to_the_innermost_line_of_a_kernels_file():
    """As the emulator attributes it: helpers of ours by their own lines, CUDA's by their calls."""
    code = code_of("atomic_block")
    shuffles = [one for one in code if one.text.startswith("SHFL")]
    assert {one.place.key for one in shuffles} == {"common.h:22"}
    assert ("csrc/kernels/atomic_block.cu", 19) in shuffles[0].frames
    assert shuffles[0].frames[0][0].endswith("sm_30_intrinsics.hpp")
    shared = [one.place.key for one in code if SHARED.match(one.text)]
    assert shared == ["common.h:35", "common.h:38"]
    assert Coded("EXIT", (("/cuda/include/x.hpp", 3),)).place is None


CASES = [
    ("sequential", None), ("atomic_block", None), ("unroll_full", 64), ("unroll_full", 256),
]  # fmt: skip


@pytest.mark.parametrize("padding", [0, 20])
@pytest.mark.parametrize(("name", "block"), CASES)
def test_listings_are_joined(name, block, padding):
    """Also where a kernel has several functions: the one that is the same throughout is taken."""
    code = code_of(name, block)
    listed = as_listed(code, padding)
    joined = with_places(listed, name, RECORDED)
    assert [replace(one, place=None) for one in joined] == listed
    for one, coded in zip(joined, code, strict=False):
        assert one.place == coded.place
    assert {one.place.line for one in joined if SHARED.match(one.text)} == {
        one.place.line for one in code if SHARED.match(one.text)
    }


def test_another_machine_code_is_not_joined():
    listed = as_listed(code_of("unroll_full", 256))
    for i in random.Random(1).sample(range(len(listed) - 8), 20):
        opcode = listed[i].opcode
        if opcode not in ("NOP", "BRA"):
            other = replace(listed[i], text=listed[i].text.replace(opcode, "BREV"))
            said = rf"none of the 2 functions.* instruction {i} is '.*BREV.*', not '.*{opcode}"
            with pytest.raises(Missing, match=said):
                with_places([*listed[:i], other, *listed[i + 1 :]], "unroll_full", RECORDED)
        with pytest.raises(Missing, match="none of the 2 functions"):
            with_places([*listed[:i], *listed[i + 1 :]], "unroll_full", RECORDED)
    swapped = [replace(one, text=re.sub(r"\bR5\b", "R9", one.text)) for one in listed]
    with pytest.raises(Missing):
        with_places(swapped, "unroll_full", RECORDED)
    guard = [replace(one, text=one.text.replace("@!P0", "@P0")) for one in listed]
    with pytest.raises(Missing):
        with_places(guard, "unroll_full", RECORDED)
    with pytest.raises(Missing, match="none of the 0 functions"):
        with_places(listed, "cascade", RECORDED)


def test_listings_may_name_places_and_zeros_in_their_own_ways():
    same = [
        ("@P0 BRA `(.L_x_0)", "@P0  BRA 0x7fe2737e5e40"),
        ("CALL.REL.NOINC `($_Z1fv$R7)", "CALL.REL.NOINC 0x7fe2737e5e40"),
        ("LDC R11, c[0x0][RZ]", "LDC R11, c[0x0][0x0]"),
        ('BRX R4 -0x510  (*"BRANCH_TARGETS .L_R8"*)', "BRX R4 -0x510"),
        ("IADD3 R2, R4.reuse, -R5, RZ", "IADD3 R2, R4, -R5, RZ"),
    ]
    for a, b in same:
        assert machine_code._essence(a) == machine_code._essence(b)
    assert len({machine_code._essence(a) for a, _ in same}) == len(same)


@pytest.mark.parametrize("name", ["sequential", "unroll_full"])
def test_lines_are_compared(name, tmp_path):
    case = Case(name, 5000, 256)
    seen = counted(case, code_of(name, 256 if name == "unroll_full" else None))
    table = verify_counters.summarize([seen], "int32", lambda strategy: RECORDED)
    assert not table.unplaced and len(table.lines) >= 8
    assert all(row.verdict == "equal" for row in table.lines), str(table)
    assert {row.counter for row in table.lines} == set(LINE_COUNTERS)
    assert {row.place.file for row in table.lines} == {f"{name}.cu"}
    assert f"by lines of the source: {len(table.lines)} of {len(table.lines)} counts" in str(table)
    again = verify_counters.Table.of_record(json.loads(json.dumps(table.as_dict())))
    assert again == table

    at = next(i for i, one in enumerate(seen.code) if one.lanes and "LDS" in one.text)
    for what, change in [("lanes", 1), ("lanes", -1), ("wavefronts", 1)]:
        code = list(seen.code)
        code[at] = replace(code[at], **{what: getattr(code[at], what) + change})
        changed = verify_counters.summarize(
            [replace(seen, code=code)], "int32", lambda strategy: RECORDED
        )
        (row,) = [row for row in changed.lines if row.difference]
        assert (row.counter, row.difference) == (f"shared_load_{what}", change)
        assert row in changed.differing and f"{row.place}\n  differs: {name}" in str(changed)


def test_a_line_that_only_the_card_comes_to_differs():
    """Code of unroll_full for blocks with more threads than it was compiled for."""
    seen = counted(Case("unroll_full", 5000, 256), code_of("unroll_full", 256))
    places = [one.place for one in with_places(seen.code, "unroll_full", RECORDED)]
    idle = next(
        i for i, one in enumerate(seen.code)
        if one.opcode == "STS" and places[i].key == "unroll_full.cu:26"
    )  # fmt: skip
    code = list(seen.code)
    code[idle] = replace(code[idle], lanes=3)
    table = verify_counters.summarize([replace(seen, code=code)], "int32", lambda name: RECORDED)
    (row,) = [row for row in table.lines if row.difference]
    assert (row.place.key, row.model, row.hardware) == ("unroll_full.cu:26", 0, 3)
    assert row in table.differing


def test_predicated_instructions_name_their_line(tmp_path):
    case = Case("sequential", 5000, 256)
    seen = counted(case, code_of("sequential"))
    table = verify_counters.summarize([seen], "int32", lambda strategy: RECORDED)
    assert [(one.place.key, one.text) for one in table.predicated] == [
        ("sequential.cu:21", "@!P0  LDS R4, [R5]"), ("sequential.cu:21", "@!P0  STS [R5], R4"),
    ]  # fmt: skip
    place, load = table.predicated[0].place, table.predicated[0]
    assert place.text == "partial[tid] += partial[tid + stride];"
    assert (
        f"{place}\n  sequential n=5,000 block=256 @!P0  LDS R4, [R5]: "
        f"{load.issued:,} warps, {load.lanes:,} lanes\n"
    ) in str(table)

    path = tmp_path / "counters_card.json"
    table.record(path)
    shown = report.markdown(json.loads(path.read_text()))
    assert f"| sequential.cu:21 | `{place.text}` | LDS, STS |" in shown
    assert f"Per line of the source, {len(table.lines)} of {len(table.lines)}" in shown


def test_the_worst_launch_of_an_instruction_is_shown():
    seen = counted(Case("sequential", 5000, 256), code_of("sequential"))
    table = verify_counters.summarize([seen], "int32", lambda strategy: RECORDED)
    load, store = table.predicated
    emptier = replace(load, n=7, lanes=1)
    assert worst_cases([load, store, emptier]) == [emptier, store]
    assert worst_cases([emptier, load, store]) == [emptier, store]


def test_two_neighbours_by_one_load_are_explained():
    """unroll_full ends in partial[0] + partial[1], which is one LDS.64."""
    seen = counted(Case("unroll_full", 5000, 256), code_of("unroll_full", 256))
    (at,) = [i for i, one in enumerate(seen.code) if one.opcode == "LDS.64"]
    code = list(seen.code)
    half = code[at].lanes // 2
    code[at] = replace(code[at], issued=half, lanes=half, wavefronts=half)
    table = verify_counters.summarize(
        [replace(seen, code=code)], "int32", lambda strategy: RECORDED
    )
    explained = {row.counter: row for row in table.lines if row.difference}
    assert set(explained) == {"shared_load_lanes", "shared_load_wavefronts"}
    assert all(f"one LDS.64 ({half})" in row.why for row in explained.values())


def test_stores_within_a_cluster_are_explained():
    """one_cluster's blocks store to the first one's memory, and that one to its own, by one ST."""
    seen = as_hardware(Case("one_cluster", 2**16, 256))
    place = next(
        Place(Path(line.file).name, line.line, line.text)
        for line in explain("one_cluster", n=2**16, block=256).lines
        if line.details["cluster_store_lanes"]
    )
    code = [
        replace(one, lanes=one.lanes - 1, place=Place("common.h", 35, ""))
        if one.opcode == "STS" else one
        for one in seen.code
    ]  # fmt: skip
    for lanes, verdict in [(8, "explained"), (7, "differs"), (0, "differs")]:
        store = Instruction("ST.E desc[UR10][R2.64], R7", 8, lanes, 0, place)
        changed = replace(seen, code=[*code, store])
        (row,) = [
            row for row in verify_counters.summarize([changed], "int32").rows if row.difference
        ]
        assert (row.counter, row.verdict) == ("shared_store_lanes", verdict)
        here = [row for row in by_line(changed, explain("one_cluster", n=2**16, block=256))
                if row.place == place and row.counter == "shared_store_lanes"]  # fmt: skip
        assert [row.verdict for row in here] == [verdict]


def test_without_the_tools_the_table_says_so(tmp_path, monkeypatch):
    seen = as_hardware(Case("sequential", 5000, 256))

    def summarized() -> str:
        machine_code._functions_or_why.cache_clear()
        table = verify_counters.summarize([seen], "int32")
        assert table.predicated and not table.lines and not table.differing
        assert verify_counters.Table.of_record(json.loads(json.dumps(table.as_dict()))) == table
        assert "(line unknown)" in str(table)
        assert (table + table).unplaced == 2 * table.unplaced != ()
        return str(table)

    monkeypatch.setattr(machine_code, "architecture", lambda: 90)
    for name in ("nvcc", "nvdisasm"):
        with monkeypatch.context() as patched:
            patched.setattr(
                toolkit.shutil, "which", lambda tool, n=name: None if n in tool else "x"
            )
            said = summarized()
        assert f"lines of the source are not known for sequential: there is no {name}" in said
    broken = tmp_path / "nvcc"
    broken.write_text("#!/bin/sh\necho 'no such architecture'; exit 2\n")
    broken.chmod(0o755)
    monkeypatch.setenv("NVCC", str(broken))
    monkeypatch.setenv("NVDISASM", "/bin/true")
    assert "nvcc failed with status 2: no such architecture" in summarized()
    monkeypatch.setenv("NVCC", "/bin/true")
    assert "none of the 0 functions" in summarized()
    machine_code._functions_or_why.cache_clear()


def test_architecture_is_the_one_that_the_card_runs(monkeypatch):
    class Card:
        backend = "cuda"

        def __init__(self, *capability: int) -> None:
            self.capability = capability

    built = {"cuda_archs": [75, 80, 86, 90, 120]}
    monkeypatch.setattr(machine_code.devices, "build", lambda: built)
    for capability, arch in [((8, 0), 80), ((8, 7), 86), ((9, 0), 90), ((12, 1), 120)]:
        cards = [Card(*capability)]
        monkeypatch.setattr(machine_code.devices, "devices", lambda cards=cards: cards)
        assert machine_code.architecture() == arch
    monkeypatch.setattr(machine_code.devices, "devices", lambda: [Card(10, 3)])
    with pytest.raises(Missing, match=r"the driver made the machine code.* 10\.3"):
        machine_code.architecture()


def missing(*tools: str) -> str:
    try:
        for name in tools:
            machine_code.find_tool(name)
    except Missing as error:
        return str(error)
    return ""


@pytest.fixture
def plain_tools(monkeypatch):
    """A sanitizer's library that is preloaded into this Python breaks nvcc."""
    monkeypatch.delenv("LD_PRELOAD", raising=False)


@pytest.mark.usefixtures("plain_tools")
@pytest.mark.skipif(bool(missing("nvcc")), reason=missing("nvcc"))
@pytest.mark.parametrize("name", ["sequential", "warp_volatile"])
def test_kernels_are_compiled_from_what_the_build_wrote_down(name, monkeypatch):
    monkeypatch.setenv("NVDISASM", "/bin/ls")
    assert "kernels.cubin" in machine_code.disassembly(name, 90)


@pytest.mark.usefixtures("plain_tools")
@pytest.mark.skipif(bool(missing("nvcc", "nvdisasm")), reason=missing("nvcc", "nvdisasm"))
@pytest.mark.parametrize("name", KERNELS)
def test_lines_with_the_real_tools(name):
    """Each access to shared memory has a line, at which the emulator counts accesses, too."""
    text = machine_code.disassembly(name, 90)
    found = functions_of(text)
    counts = explain(name, n=2**16, block=256, finish=finish_of(name)).lines
    (code,) = [
        code for key, code in found.items()
        if re.match(rf"_Z\d+{name}IPKjj(Lj256E)?E", key)
    ]  # fmt: skip
    for op, kind in (("load", "LDS"), ("store", "STS")):
        model = {
            f"{Path(line.file).name}:{line.line}"
            for line in counts
            if line.counters[f"shared_{op}_lanes"] and not line.details["cluster_store_lanes"]
        }
        machine = {o.place.key for o in code if (m := SHARED.match(o.text)) and m[1] == kind}
        assert model <= machine
        for key in machine - model:  # what no block of this size comes to
            assert name in ("unroll_full", "cascade") and key.endswith(":26"), key
    joined = with_places(as_listed(code), name, found)
    assert [one.place for one in joined][: len(code) - 20] == [o.place for o in code][:-20]
    assert all(one.place.text for one in joined if SHARED.match(one.text))


@pytest.mark.usefixtures("plain_tools")
@pytest.mark.skipif(bool(missing("nvcc", "nvdisasm")), reason=missing("nvcc", "nvdisasm"))
def test_what_cuda_makes_of_a_barrier_of_the_grid():
    """The instructions that explain its counts: an atomic, a shuffle, and loads that wait."""
    found = functions_of(machine_code.disassembly("grid_sync", 90))
    (code,) = [code for key, code in found.items() if re.match(r"_Z\d+grid_syncIPKjjE", key)]
    listed = [replace(one, place=o.place) for one, o in zip(as_listed(code, 0), code, strict=False)]
    of_barrier = [one.opcode for one in listed if "this_grid().sync()" in one.place.text]
    others = [one.opcode for one in listed if "this_grid().sync()" not in one.place.text]
    for opcode, how_often in [("SHFL.IDX", 1), (_LOOK, 1), ("ATOM", 1), ("MEMBAR", 1)]:
        assert sum(bool(re.match(opcode, one)) for one in of_barrier) == how_often
        assert not any(re.match(opcode, one) for one in others)
