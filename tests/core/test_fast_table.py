"""The table behind `fast`: how it is made, kept, loaded and obeyed."""

from __future__ import annotations

import concurrent.futures
import json
import os
import re
import threading
from pathlib import Path

import numpy as np
import pytest

import gpureduce
from gpureduce import Choice, _emulator
from gpureduce.bench import tuning
from gpureduce.core import devices, fast_table, registry, table_files
from producers import ByInterface

EMULATOR = devices.choose_device("emulator")
TABLE = (
    Choice(4096, 4, "one_block", 64),
    Choice(8192, 0, "one_cluster", 128, 16),
    Choice(2**64 - 1, 0, "tiles", 96, 0, 2),
)


@pytest.fixture
def defaults():
    yield
    fast_table.use((), EMULATOR)


def launched(n, dtype="int32"):
    array = np.arange(n, dtype=dtype) % 100
    value, timing = gpureduce.sum(ByInterface(array), "fast", device="emulator")
    assert value == array.sum()
    return timing.strategy, timing.block, timing.grid


def test_rows_are_tried_in_order(defaults):
    fast_table.use(TABLE, EMULATOR)
    assert gpureduce.fast_table("emulator") == list(TABLE)
    assert launched(1024) == ("one_block", 64, 1)
    assert launched(1025) == ("one_cluster", 128, 16)
    assert launched(100, "int16") == ("one_cluster", 128, 16)
    assert launched(2049) == ("tiles", 96, 6)
    assert launched(20000) == ("tiles", 96, 8)
    fast_table.use((), EMULATOR)
    assert launched(1024)[0] == "one_block" and len(gpureduce.fast_table("emulator")) > 3


def test_launch_is_what_the_engine_does(defaults):
    fast_table.use(TABLE, EMULATOR)
    for n, choice in ((1000, TABLE[0]), (2000, TABLE[1]), (2049, TABLE[2]), (20000, TABLE[2])):
        block, grid = choice.launch(4 * n, EMULATOR.sms)
        assert launched(n)[1:] == (block, grid or 1)


WRONG_ROWS = [
    ({"block": 0}, "block must be a multiple of 32 from 32 to 1024, not 0"),
    ({"block": 2**32}, f"block must be a multiple of 32 from 32 to 1024, not {2**32}"),
    ({"block": 2**32 + 64}, f"block must be a multiple of 32 from 32 to 1024, not {2**32 + 64}"),
    ({"block": 48}, "block must be a multiple of 32 from 32 to 1024, not 48"),
    ({"grid": -1}, "grid must be from 0 to 2\\*\\*20, not -1"),
    ({"grid": 2**32 + 8}, f"grid must be from 0 to 2\\*\\*20, not {2**32 + 8}"),
    # Each sum was out of memory, or took seconds.
    (
        {"strategy": "cascade", "grid": 2**31 - 1},
        "grid must be from 0 to 2\\*\\*20, not 2147483647",
    ),
    ({"blocks_per_sm": 2**32 + 1}, f"blocks_per_sm must be from 0 to 1024, not {2**32 + 1}"),
    ({"max_bytes": 0}, r"max_bytes must be from 1 to 2\*\*64 - 1, not 0"),
    ({"max_bytes": 2**64}, r"max_bytes must be from 1 to 2\*\*64 - 1, not 18446744073709551616"),
    ({"element_bytes": 3}, "element_bytes must be 0, 1, 2, 4 or 8, not 3"),
    ({"element_bytes": 2**32}, f"element_bytes must be 0, 1, 2, 4 or 8, not {2**32}"),
    ({"strategy": "quick"}, "strategy must be one of .*, not 'quick'"),
    ({"strategy": "cub"}, "strategy must be one of global_tree, .*, not 'cub'"),
    ({"strategy": "redux"}, "strategy must be one of .*, not 'redux'"),  # not of every dtype
    ({"strategy": "atomic_block"}, "strategy must be one of .*, not 'atomic_block'"),
    ({"strategy": "one_block", "grid": 2}, "grid must be 0 or 1 for one_block, not 2"),
    ({"strategy": "one_cluster", "grid": 4}, "grid must be 0 or 8 or 16 for one_cluster, not 4"),
    ({"strategy": "cluster", "grid": 4}, "grid must be a multiple of 8 for cluster, not 4"),
    ({"strategy": "sequential", "grid": 4}, "grid must be 0 for sequential, not 4"),
    ({"strategy": "grid_sync", "blocks_per_sm": 1}, "blocks_per_sm must be 0 for grid_sync, not 1"),
]
WRONG_TYPES = [
    ({"block": "64"}, 'block must be a whole number, not "64"'),
    ({"block": 64.0}, "block must be a whole number, not 64.0"),
    ({"grid": True}, "grid must be a whole number, not true"),
    ({"grid": None}, "grid must be a whole number, not null"),
    ({"strategy": ["tiles"]}, "strategy must be a string, not a list"),
    ({"max_byte": 1}, "max_byte is not a field: there are max_bytes, element_bytes"),
]
ROW = {"max_bytes": 64, "element_bytes": 0, "strategy": "tiles", "block": 64}


@pytest.mark.parametrize(("change", "fault"), WRONG_ROWS)
def test_bad_tables_are_refused(change, fault):
    with pytest.raises(ValueError, match=rf"rows\[1\]\.{fault}"):
        fast_table.use([TABLE[0], Choice(**ROW | change)], EMULATOR)


def test_bad_sizes_of_tables_are_refused():
    with pytest.raises(ValueError, match="at most 96 rows"):
        fast_table.use([TABLE[0]] * 97, EMULATOR)
    with pytest.raises(ValueError, match="at most 64"):
        _emulator.set_choices(64, [])


@pytest.mark.parametrize("at", range(6))
def test_c_refuses_rows_that_it_cannot_launch(at):
    """A block of 0 would divide by zero; wide numbers were cut to their low 32 bits."""
    strategies = list(registry.STRATEGIES)
    row = [64, 0, strategies.index("tiles"), 64, 0, 0]
    for wrong in (2**64, 2**32, 2**32 + 64, -1, 3, "64", 64.0, None):
        if at == 0 and wrong in (2**32, 2**32 + 64, 3):
            continue  # which a number of bytes may be
        if at in (2, 4, 5) and wrong == 3:
            continue
        changed = (*row[:at], wrong, *row[at + 1 :])
        with pytest.raises((ValueError, OverflowError, TypeError)):
            _emulator.set_choices(0, [changed])
    for block in (0, 16, 33, 1056):
        with pytest.raises(ValueError, match=r"row 0 of the table has a block that is not"):
            _emulator.set_choices(0, [(64, 0, row[2], block, 0, 0)])
    for name in ("cub", "fast", "missing_barrier"):
        with pytest.raises(ValueError, match="row 0 of the table names no kernel"):
            _emulator.set_choices(0, [(64, 0, strategies.index(name), 64, 0, 0)])
    with pytest.raises(TypeError, match="a row of a table is a tuple"):
        _emulator.set_choices(0, [row])


def test_a_field_that_is_no_whole_number():
    with pytest.raises(ValueError, match=r"rows\[0\].max_bytes must be a whole number, not 1.5"):
        table_files.as_rows([Choice(1.5, 4, "one_block", 256)])


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_a_table_that_is_replaced_is_freed(defaults):
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1])

    rows = table_files.as_rows(TABLE)
    before = resident()
    for _ in range(10_000):  # of 3 KiB each
        _emulator.set_choices(0, rows)
    assert resident() - before < 2000  # pages of 4 KiB


def test_tables_are_replaced_while_others_sum(defaults):
    array = np.ones(3000, np.float32)
    stop = threading.Event()

    def add():
        while not stop.is_set():
            assert gpureduce.sum(array, "fast", device="emulator", timing=False).value == 3000

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(add) for _ in range(2)]
        for _ in range(500):
            fast_table.use(TABLE, EMULATOR)
            assert gpureduce.fast_table("emulator") == list(TABLE)
            fast_table.use((), EMULATOR)
        stop.set()
        for job in jobs:
            job.result()


def test_boundaries_lie_between_the_sizes():
    def at(size, block):
        return size, Choice(size, 0, "tiles", block)

    rows = tuning.rows_from({4: [at(100, 64), at(400, 64), at(1600, 128)], 8: [at(100, 32)]})
    assert rows == (
        Choice(800, 4, "tiles", 64),
        Choice(2**64 - 1, 4, "tiles", 128),
        Choice(2**64 - 1, 8, "tiles", 32),
    )


def test_a_choice_is_kept_unless_another_is_clearly_quicker():
    a, b = Choice(1, 0, "tiles", 64), Choice(1, 0, "tiles", 128)
    assert tuning._best({a: 1.0, b: 1.01}, None) == a
    assert tuning._best({a: 1.0, b: 1.01}, tuning._shape(b)) == b
    assert tuning._best({a: 1.0, b: 1.02}, tuning._shape(b)) == a
    a, b = Choice(2**26, 0, "tiles", 64), Choice(2**26, 0, "tiles", 128)
    assert tuning._best({a: 1.0, b: 1.002}, tuning._shape(b)) == b
    assert tuning._best({a: 1.0, b: 1.01}, tuning._shape(b)) == a


def test_candidates_fit_a_multiprocessor_and_the_table():
    for size in tuning.SIZES:
        found = list(tuning.candidates(size))
        assert len(set(found)) == len(found) >= 5
        assert all(c.block * c.blocks_per_sm <= 1024 for c in found)
        assert any(c.strategy == "bulk_copy" for c in found) == (size >= 2**22)
    most = [(s, Choice(s, 0, "tiles", 32 * (i + 1))) for i, s in enumerate(tuning.SIZES)]
    rows = tuning.rows_from(dict.fromkeys((1, 2, 4, 8), most))
    assert len(rows) == 4 * len(tuning.SIZES)
    fast_table.use(rows, EMULATOR)
    fast_table.use((), EMULATOR)


def test_sizes_and_repeats_that_cannot_be():
    for wrong, words in (
        ({"sizes": [4096, 0]}, "sizes must be from 1 to .*, not 0"),
        ({"sizes": [-4096]}, "sizes must be from 1 to .*, not -4096"),
        ({"repeats": 0}, "repeats must be from 1 to .* - 1, not 0"),
        ({"repeats": 2**32 + 1}, "repeats must be from 1 to .* - 1, not 4294967297"),
    ):
        with pytest.raises(ValueError, match=words):
            gpureduce.tune("emulator", **wrong)


def test_a_card_gets_its_own_table(tmp_path, monkeypatch, defaults):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    tuning.save(TABLE, EMULATOR, table_files.user_file(EMULATOR.name))
    table_files.load_for(_emulator, [EMULATOR.name, "another"])
    assert gpureduce.fast_table("emulator") == list(TABLE)


def table_text(**changes):
    return json.dumps({"schema": 1, "kind": "fast_table", "rows": [ROW | changes]})


SPOILT = [
    *(("", "[]", "null", "{", "[" * 10**5, '{"a":' * 10**5, "9" * 5000)),
    *(('{"schema": 1, "kind": "bench", "rows": []}', '{"kind": "fast_table", "rows": []}')),
    *(('{"schema": 1, "kind": "fast_table"}', '{"schema": 1, "kind": "fast_table", "rows": {}}')),
    '{"schema": 1, "kind": "fast_table", "rows": [1]}',
    '{"schema": 1, "kind": "fast_table", "rows": [{"strategy": "tiles"}]}',
    json.dumps({"schema": 1, "kind": "fast_table", "rows": [ROW] * 97}),
]


def spoil(tmp_path, monkeypatch, text):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = table_files.user_file(EMULATOR.name)
    path.parent.mkdir()
    path.write_text(text)
    before = gpureduce.fast_table("emulator")
    with pytest.warns(RuntimeWarning, match="'fast' uses its built-in table: ") as warned:
        table_files.load_for(_emulator, [EMULATOR.name])
    assert gpureduce.fast_table("emulator") == before
    (one,) = warned
    assert f"{path}: " in str(one.message)
    return str(one.message)


@pytest.mark.parametrize("text", SPOILT, ids=range(len(SPOILT)))
def test_a_spoilt_file_warns_and_leaves_the_defaults(text, tmp_path, monkeypatch, defaults):
    spoil(tmp_path, monkeypatch, text)


@pytest.mark.parametrize(("change", "fault"), [*WRONG_ROWS, *WRONG_TYPES])
def test_the_warning_names_the_field(change, fault, tmp_path, monkeypatch, defaults):
    told = spoil(tmp_path, monkeypatch, table_text(**change))
    assert re.search(rf"gpureduce-emulator\.json: rows\[0\]\.{fault}", told), told


@pytest.mark.gpu
@pytest.mark.alone
def test_on_the_card(tmp_path, monkeypatch):
    device = devices.choose_device("cuda")
    before = gpureduce.fast_table("cuda")
    made = gpureduce.tune("cuda", [2**12, 2**18], 3, path=tmp_path / "t.json")
    try:
        assert gpureduce.fast_table("cuda") == list(made.choices)
    finally:
        fast_table.use(before, device)


def test_users_without_a_home_have_the_shipped_tables(monkeypatch, defaults):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(table_files.Path, "home", homeless)
    before = gpureduce.fast_table("emulator")
    table_files.load_for(_emulator, [EMULATOR.name])
    assert gpureduce.fast_table("emulator") == before


def test_the_shipped_tables_are_right():
    paths = sorted(table_files._SHIPPED.glob("*.json"))
    assert paths and all(table_files.load(path) for path in paths)
