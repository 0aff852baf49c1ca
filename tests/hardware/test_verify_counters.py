"""verify-counters: how ncu's tables are read and judged, and the records that a card has left."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

import gpureduce
import readme
import wavefront_patterns
from cases import KERNELS, ROOT
from fake_ncu import as_hardware
from gpureduce.hardware import counters, report, verify_counters
from gpureduce.hardware import ncu as _ncu
from gpureduce.hardware.counters import Case, Instruction


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


def summarized(*found) -> verify_counters.Table:
    return verify_counters.summarize(found, "int32")


def test_verification_finds_what_differs():
    seen = as_hardware(Case("unroll_warp", 2**16, 256))
    table = summarized(seen)
    assert {row.verdict for row in table.rows} == {"equal"} and not table.differing
    assert [line.text for line in table.predicated] == ["@P0 LDS R1 x"]
    assert "@P0 LDS R1 x: " in str(table)

    for counter in ("shared_load_wavefronts", "global_load_sectors", "shared_load_conflicts"):
        for change in (1, -1):
            wrong = seen.counters | {counter: seen.counters[counter] + change}
            found = summarized(replace(seen, counters=wrong))
            assert counter in {row.counter for row in found.differing}
    lost = [i for i in seen.code if "BAR" not in i.text]
    found = summarized(replace(seen, code=lost))
    assert [row.counter for row in found.differing] == ["block_barrier_instructions"]
    assert "differs:" in str(found) and "model 6,144, hardware 0" in str(found)


def test_matrices_are_added_up_by_the_grid_of_the_card():
    """A card has more multiprocessors than the emulator."""
    seen = as_hardware(Case("row_lanes", 2048 * 64, 256, 64, 2048))
    assert seen.case.grid == 64 and seen.case.shape == (2048, 64)
    assert not summarized(seen).differing
    wrong = summarized(replace(seen, case=replace(seen.case, grid=8)))
    assert not wrong.failures, "the counts depend on the grid, and only the counts"
    own = as_hardware(Case("row_split", 2 * 16384, 256, 0, 2))
    found = summarized(replace(own, case=replace(own.case, grid=own.case.grid + 1)))
    [failure] = found.failures
    assert "row_split chooses its own grid" in failure.why and not found.rows


@pytest.mark.parametrize("name", ["row_thread", "column_tiles", "sequential"])
def test_what_ncu_profiles_has_the_shape_and_the_axis_of_the_model(name, monkeypatch):
    """On the emulator in place of a card."""
    seen = []

    def add(array, strategy, dtype, block, grid, finish, device, *, axis):
        seen.append((array.shape, axis))
        assert device == "cuda"
        return gpureduce.sum(array, strategy, dtype, block, grid, finish, "emulator", axis=axis)

    monkeypatch.setattr("gpureduce.core.summation.sum", add)
    cases = verify_counters.matrix_cases(name) if name != "sequential" else [Case(name, 5000, 256)]
    ran, failed = counters.launch(cases, "int32")
    assert not failed and [replace(case, grid=0) for case in ran] == cases
    for case, (shape, axis) in zip(ran, seen, strict=True):
        found = verify_counters._explained(case, "int32", None)
        assert found.grid == case.grid and (found.shape or (found.n,)) == shape
        assert found.axis == axis


CONFLICTS = "shared_load_conflicts", "shared_load_pipe"


@pytest.mark.parametrize(
    ("noise", "more", "verdict"),
    [
        (7, CONFLICTS, "explained"),
        (9000, CONFLICTS, "explained"),
        (-7, CONFLICTS, "differs"),
        (7, (*CONFLICTS, "shared_load_wavefronts"), "differs"),
        (7, ("shared_load_conflicts",), "differs"),
    ],
)
def test_conflicts_may_be_more_where_no_instruction_has_them(noise, more, verdict):
    """If the pipe's own wavefronts are as many more, and its instructions' are not; never fewer."""
    seen = as_hardware(Case("unroll_warp", 2**16, 256))
    changed = seen.counters | {name: seen.counters[name] + noise for name in more}
    rows = summarized(replace(seen, counters=changed)).rows
    (row,) = [row for row in rows if row.counter == "shared_load_conflicts"]
    assert row.verdict == verdict
    assert ("arbitration" in row.why) == (verdict == "explained")


def test_verification_explains_what_the_compiler_merges():
    seen = as_hardware(Case("unroll_warp", 2**16, 256))
    fewer = dict(seen.counters)
    for name in ("instructions", "wavefronts", "pipe"):
        fewer[f"shared_load_{name}"] -= 256
    merged = []
    for one in seen.code:
        if "LDS" in one.text:
            merged.append(Instruction("@P0 LDS x", one.issued, one.lanes - 512, 0))
            merged.append(Instruction("LDS.64 x", 256, 256, 256))
        else:
            merged.append(one)
    table = summarized(replace(seen, counters=fewer, code=merged))
    assert not table.differing
    assert {row.counter for row in table.rows if "LDS.64 (256)" in row.why} == {
        "shared_load_instructions", "shared_load_wavefronts", "shared_load_lanes",
        "shared_load_accesses",
    }  # fmt: skip


def test_verification_knows_how_cuda_makes_a_barrier_of_the_grid():
    seen = as_hardware(Case("grid_sync", 2**16, 256, 16))
    more = dict(seen.counters)
    more["global_load_requests"] += 123
    more["global_load_sectors"] += 117  # counted in another run, in which threads waited less
    code = [
        *seen.code, Instruction("LD.E.STRONG.GPU x", 131, 131, 0),
        Instruction("@P4 ATOM.E.ADD.STRONG.GPU x", 16, 16, 0),
        Instruction("SHFL.IDX x", 16, 16, 0),
        Instruction("@P4 MEMBAR.ALL.GPU", 16, 16, 0),
        Instruction("BAR.SYNC.DEFER_BLOCKING 0x0", 2 * 16 * 8, 2 * 16 * 8 * 32, 0),
        Instruction("WARPSYNC.COLLECTIVE.ALL x", 32, 512, 0),
    ]  # fmt: skip
    table = summarized(replace(seen, counters=more, code=code))
    assert not table.differing, str(table)
    explained = {row.counter for row in table.rows if row.verdict == "explained"}
    assert explained == {
        "global_load_requests", "global_load_sectors", "atomics", "fences", "shuffles",
        "block_barrier_instructions", "warp_barriers",
    }  # fmt: skip
    assert summarized(replace(seen, counters=more)).differing
    for wrong in (  # more loads than those that wait, and a shuffle too many
        Instruction("LDG.E x", 1, 1, 0),
        Instruction("LDG.E x", 1, 0, 0),
        Instruction("SHFL.DOWN x", 1, 32, 0),
        Instruction("NOP", 1, 32, 0),
    ):
        found = summarized(replace(seen, counters=more, code=[*code, wrong]))
        assert found.differing, wrong
    seldom = [*code[:-6], Instruction("LD.E.STRONG.GPU x", 15, 15, 0), *code[-5:]]
    assert summarized(replace(seen, counters=more, code=seldom)).differing


def test_verification_knows_what_warps_in_two_parts_do():
    """`__syncwarp` is one WARPSYNC for 32 lanes, however often it is issued."""
    seen = as_hardware(Case("unroll_warp", 2**16, 256))
    by_opcode = {i.opcode: i for i in seen.code}
    own, barrier = (by_opcode.pop("NOP").issued, by_opcode.pop("BAR.SYNC"))
    assert own == 5 * seen.case.grid
    shuffle = Instruction("SHFL.DOWN", own, 32 * own, 0)

    def row(*code):
        rows = summarized(replace(seen, code=[*by_opcode.values(), *code])).rows
        return next(row for row in rows if row.counter == "warp_barriers")

    assert row(Instruction("WARPSYNC.ALL", own, 32 * own, 0), shuffle).verdict == "equal"
    parted = row(Instruction("WARPSYNC.ALL", 2 * own, 32 * own, 0), shuffle)
    assert parted.verdict == "explained" and "diverged warp" in parted.why
    assert row(Instruction("WARPSYNC.ALL", 2 * own, 64 * own, 0), shuffle).verdict == "differs"
    both = row(
        Instruction("WARPSYNC.ALL", 8 * own, 8 * 32 * own, 0),
        barrier,
        Instruction("WARPSYNC.ALL", own, 32 * own, 0),
        shuffle,
    )
    assert both.why == f"{8 * own:,} WARPSYNC precede a barrier of the block or cluster"
    fenced = row(
        Instruction("NOP", 7 * own, 7 * own, 0),
        Instruction("FENCE.VIEW.ASYNC.S", 6 * own, 6 * own, 0),
    )
    assert fenced.why == f"{6 * own:,} NOP follow the fences of bulk copies"


def test_verification_knows_why_a_warp_that_has_branched_is_gathered():
    """Without `__syncwarp`, by WARPSYNC before a shuffle; nowhere else, and no part of a warp."""
    seen = as_hardware(Case("tiles", 2**16, 256))
    blocks = seen.case.grid
    shuffles = [i for i in seen.code if i.opcode == "SHFL.DOWN"]
    rest = [i for i in seen.code if i.opcode != "SHFL.DOWN"]

    def verdict(*code):
        rows = summarized(replace(seen, code=[*rest, *code])).rows
        return next(row for row in rows if row.counter == "warp_barriers")

    gathered = Instruction("WARPSYNC.ALL", 2 * blocks, 32 * blocks, 0)
    found = verdict(gathered, *shuffles)
    assert found.verdict == "explained"
    assert found.why.startswith(f"{blocks:,} WARPSYNC reconverge a warp before a sh")
    assert verdict(*shuffles, gathered).verdict == "differs"
    assert verdict(gathered, gathered, *shuffles).verdict == "differs"


def test_readme_shows_a_record(tmp_path):
    """What is equal, what is explained, and what differs."""
    path = tmp_path / "counters_card.json"
    (tmp_path / "wavefronts_card.json").write_text(
        '{"schema": 1, "kind": "wavefronts", "patterns": [{"equal": true}]}'
    )
    cases = [Case(name, n, 64) for name in ("sequential", "warp_shfl") for n in (1024, 5000)]
    summarized(*map(as_hardware, cases)).record(path)
    record = json.loads(path.read_text())
    equal = report.markdown(record)
    assert f"Of {len(record['rows'])} counters, {len(record['rows'])} are equal" in equal
    assert "model → hardware" in equal and "8 of 8 counts equal the model's." in equal
    shown = readme.counters(tmp_path)
    assert "In 1 of 1 patterns" in shown and "patterns" not in equal

    for row in record["rows"]:
        if (row[0], row[4]) == ("sequential", "global_load_sectors"):
            row[record["columns"].index("hardware")] += 1
    record["failures"] = [["redux", 5000, 64, 0, "out of registers"]]
    shown = report.markdown(record)
    assert "and 2 differ for an unknown reason. 1 launch could not be measured (redux)." in shown
    assert "128 → 129 (+0.78%) | not explained |" in shown and "| `sequential` |" in shown


def test_readme_tells_how_much_is_arbitration():
    rows = []
    for noise in (0, 7, 1400):
        seen = as_hardware(Case("unroll_warp", 2**16, 256))
        more = {name: seen.counters[name] + noise for name in CONFLICTS}
        case = replace(seen.case, n=2**16 + noise)
        rows += [
            replace(row, n=case.n)
            for row in summarized(replace(seen, counters=seen.counters | more)).rows
        ]
    said = report.arbitration(rows)
    assert "4 of 6 counts equal the model's. In 2 counts, the pipe for shared" in said
    assert "In 1 of them, this is more than 5%" in said
    assert "is 18.6% (`unroll_warp`, n = 66,936, block 256: 1,400 of 7,544 wavefronts of" in said


def test_readme_without_a_record_says_how_to_make_one(tmp_path):
    assert "gpureduce verify-counters --record" in readme.counters(tmp_path)


def test_patterns_of_accesses_are_compared(monkeypatch, tmp_path, capsys):
    """By a card that does as the model says, but for one run of ncu and one pattern."""
    runs = []

    def measured(program, patterns):
        runs.append(len(patterns))
        if len(runs) == 2:
            raise _ncu.Failed("something")
        seen = []
        for pattern in patterns:
            counts = {}
            for op in ("load", "store"):
                wavefronts, ideal = wavefront_patterns.model(pattern, op)
                counts[f"{op}_wavefronts"] = 64 * wavefronts
                counts[f"{op}_conflicts"] = 64 * (wavefronts - ideal)
                counts[f"{op}_instructions"] = 64
            seen.append(counts)
        if len(runs) == 3:
            seen[0]["store_wavefronts"] += 1
        return seen

    monkeypatch.setattr(wavefront_patterns, "build", lambda folder: folder / "program")
    monkeypatch.setattr(wavefront_patterns, "measure", measured)
    path = tmp_path / "wavefronts.json"
    assert wavefront_patterns.main(["--patterns", "1000", "--record", str(path)]) == 1
    rows = json.loads(path.read_text())["patterns"]
    assert runs == [300, 300, 300, 100] and len(rows) == 700
    assert sum(not row["equal"] for row in rows) == 1
    assert {row["size"] for row in rows} == {4, 8, 16}
    assert "patterns 300 to 599: something" in capsys.readouterr().err
    runs[:] = [0, 0, 0, 0]
    assert wavefront_patterns.main(["--patterns", "20"]) == 0


AXIS = {s.name for s in gpureduce.strategies(internal=True) if s.kind == "axis"}
RECORD = ROOT / "notebooks" / "data" / "counters_h200.json"
WAVEFRONTS = ROOT / "notebooks" / "data" / "wavefronts_h200.json"


@pytest.mark.skipif(not RECORD.exists(), reason="not measured yet")
def test_record_of_the_counters():
    record = json.loads(RECORD.read_text())
    rows = [dict(zip(record["columns"], row, strict=True)) for row in record["rows"]]
    measured = {row["strategy"] for row in rows} | {one[0] for one in record["failures"]}
    assert measured - AXIS == set(KERNELS)
    assert len({row["n"] for row in rows}) >= 3 and len({row["block"] for row in rows}) >= 2
    lines = [dict(zip(record["line_columns"], row, strict=True)) for row in record["lines"]]
    assert lines and not record["unplaced"]
    for row in [*rows, *lines]:
        assert row["difference"] == row["hardware"] - row["model"]
        assert row["verdict"] in ("equal", "explained") or row["strategy"] == "grid_sync", row
        if row["counter"].endswith("_conflicts"):
            assert row["difference"] >= 0, row


@pytest.mark.slow
@pytest.mark.skipif(not RECORD.exists(), reason="not measured yet")
def test_the_record_is_judged_as_it_would_be_today():
    """By the same model. Better reasons need no card: `verify-counters --again` writes them."""
    record = json.loads(RECORD.read_text())
    assert len(record["seen"]["launches"]) > 150
    table, recorded = verify_counters.judge_again(record), verify_counters.Table.of_record(record)
    # The loops of these have changed since then: their counts wait for the next record.
    changed = {"any_layout", "row_lanes"}
    rows = [[r for r in of.rows if r.strategy not in changed] for of in (table, recorded)]
    assert rows[0] == rows[1]
    assert replace(table, lines=(), rows=()) == replace(recorded, lines=(), rows=())
    # Lines that have moved since then wait for the next record.
    texts = {path.name: path.read_text().splitlines() for path in (ROOT / "csrc").rglob("*.[ch]*")}
    places = {row.place for row in recorded.lines}
    stand = {p for p in places if texts[p.file][p.line - 1].strip() == p.text.strip()}
    lines = [[row for row in of.lines if row.strategy not in changed] for of in (table, recorded)]
    judged = [[row for row in of if row.place in stand] for of in lines]
    assert judged[0] == judged[1] and len(judged[0]) > 0.95 * len(lines[1])
    assert not [
        row
        for row in table.differing
        if getattr(row, "place", None) in {*stand, None} and row.strategy not in changed
    ]
    assert not table.failures
    assert len(table.control) >= 40 and any(row.model for row in table.control)
    barrier = "cooperative_groups::this_grid().sync();"
    for seen in table.seen:
        for one in seen.code:
            if seen.case.strategy == "grid_sync" and re.match("SHFL.IDX|LD.*STRONG", one.opcode):
                assert one.place.text.strip() == barrier, "that is another's than the barrier's"


@pytest.mark.skipif(not WAVEFRONTS.exists(), reason="not measured yet")
def test_wavefronts_are_those_of_the_card():
    record = json.loads(WAVEFRONTS.read_text())
    assert len(record["patterns"]) >= 1000
    for row in record["patterns"]:
        for op in ("load", "store"):
            counted = wavefront_patterns.model(row, op)
            measured = row["hardware"][f"{op}_wavefronts"] / record["repeats"]
            conflicts = row["hardware"][f"{op}_conflicts"] / record["repeats"]
            assert counted == (measured, measured - conflicts)
