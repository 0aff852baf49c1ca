"""The table behind `fast`: how it is made, kept, loaded and obeyed."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import gpureduce
from gpureduce import Choice, _backends, _choices, _emulator, cli, tuning
from producers import ByInterface

EMULATOR = _backends.choose_device("emulator")
TABLE = (
    Choice(4096, 4, "one_block", 64),
    Choice(8192, 0, "one_cluster", 128, 16),
    Choice(2**64 - 1, 0, "tiles", 96, 0, 2),
)


@pytest.fixture
def defaults():
    yield
    _choices.use((), EMULATOR)


def launched(n, dtype="int32"):
    array = np.arange(n, dtype=dtype) % 100
    value, timing = gpureduce.sum(ByInterface(array), "fast", device="emulator")
    assert value == array.sum()
    return timing.strategy, timing.block, timing.grid


def test_rows_are_tried_in_order(defaults):
    _choices.use(TABLE, EMULATOR)
    assert gpureduce.fast_table("emulator") == list(TABLE)
    assert launched(1024) == ("one_block", 64, 1)
    assert launched(1025) == ("one_cluster", 128, 16)
    assert launched(100, "int16") == ("one_cluster", 128, 16)
    assert launched(2049) == ("tiles", 96, 6)
    assert launched(20000) == ("tiles", 96, 8)
    _choices.use((), EMULATOR)
    assert launched(1024)[0] == "one_block" and len(gpureduce.fast_table("emulator")) > 3


def test_no_table_for_what_is_read_over_the_bus(defaults):
    _choices.use([Choice(2**64 - 1, 0, "one_cluster", 64, 8)], EMULATOR)
    for nbytes, name in ((65535, "one_cluster"), (65536, "tiles"), (2**24, "tiles")):
        array = np.ones(nbytes, np.uint8)
        for timing in (True, False):
            result = gpureduce.sum(array, "fast", device="emulator", timing=timing)
            assert int(result.value) == nbytes
            if timing:
                assert result.timing.strategy == name
    assert launched(2**14)[0] == "one_cluster"


def test_launch_is_what_the_engine_does(defaults):
    _choices.use(TABLE, EMULATOR)
    for n, choice in ((1000, TABLE[0]), (2000, TABLE[1]), (2049, TABLE[2]), (20000, TABLE[2])):
        block, grid = choice.launch(4 * n, EMULATOR.sms)
        assert launched(n)[1:] == (block, grid or 1)


def test_bad_tables_are_refused():
    with pytest.raises(ValueError, match="names no kernel"):
        _choices.use([Choice(1, 0, "cub", 64)], EMULATOR)
    with pytest.raises(ValueError, match="at most 96 rows"):
        _choices.use([TABLE[0]] * 97, EMULATOR)
    with pytest.raises(ValueError, match="at most 64"):
        _emulator.set_choices(64, [])


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
    _choices.use(rows, EMULATOR)
    _choices.use((), EMULATOR)


def test_large_arrays_are_measured_in_turns(monkeypatch):
    asked = []

    def time(device, array, choice, repeats):
        asked.append((array.dtype.name, choice))
        return [5.0, 1.0, 3.0][len(asked) // len(choices) % 3]

    monkeypatch.setattr(tuning, "LARGE", 2**12)
    monkeypatch.setattr(tuning, "_time", time)
    choices = list(tuning.candidates(2**12))
    times = tuning._group_times(EMULATOR, ["int32", "float32"], 2**12, 1)
    assert asked == [(d, c) for d in ("int32", "float32") for _ in range(3) for c in choices]
    assert set(times) == set(choices) and len(asked) == 6 * len(choices)


def test_tune_measures_saves_and_uses(defaults, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    card = dataclasses.replace(EMULATOR, id="cuda:0", backend="cuda", l2_bytes=0)
    monkeypatch.setattr(_backends, "choose_device", lambda _: card)
    monkeypatch.setattr(_backends, "module_of", lambda _: _emulator)
    assert cli.main(["tune", "--sizes", "2^12", "2^14", "--repeats", "1"]) == 0
    path = tmp_path / "gpureduce" / "gpureduce-emulator.json"
    assert str(path) in capsys.readouterr().out
    kept = json.loads(path.read_text())
    assert kept["schema"] == 1 and kept["card"] == EMULATOR.name
    assert {row["element_bytes"] for row in kept["rows"]} == {1, 2, 4, 8}
    assert list(_choices.load(path)) == gpureduce.fast_table("emulator")
    assert cli.main(["tune", "--show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == kept["rows"]


def test_the_emulators_table_is_written_only_where_that_is_asked_for(
    defaults, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    tune = ["tune", "--device", "emulator", "--sizes", "2^12", "--repeats", "1"]
    assert cli.main(tune) == 0
    assert "not written" in capsys.readouterr().out and not (tmp_path / "config").exists()
    assert cli.main([*tune, "--json", "--output", str(tmp_path / "table.json")]) == 0
    said = capsys.readouterr()
    kept = json.loads((tmp_path / "table.json").read_text())
    assert json.loads(said.out) == kept["rows"] and str(tmp_path / "table.json") in said.err


def test_sizes_and_repeats_that_cannot_be():
    for wrong, words in (
        ({"sizes": [4096, 0]}, "sizes must be from 1 to .*, not 0"),
        ({"sizes": [-4096]}, "sizes must be from 1 to .*, not -4096"),
        ({"repeats": 0}, "repeats must be from 1 to 2147483647, not 0"),
        ({"repeats": 2**32 + 1}, "repeats must be from 1 to 2147483647, not 4294967297"),
    ):
        with pytest.raises(ValueError, match=words):
            gpureduce.tune("emulator", **wrong)


def test_a_card_gets_its_own_table(tmp_path, monkeypatch, defaults):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    _choices.save(TABLE, EMULATOR, _choices.user_file(EMULATOR))
    _choices.load_for(_emulator, [EMULATOR.name, "another"])
    assert gpureduce.fast_table("emulator") == list(TABLE)


@pytest.mark.parametrize("text", ["", "[]", '{"rows": [{"strategy": "tiles"}]}',
                                  '{"rows": [{"max_bytes": 1, "element_bytes": 0, "block": 32, '
                                  '"strategy": "quick"}]}'])  # fmt: skip
def test_a_spoilt_file_warns_and_leaves_the_defaults(text, tmp_path, monkeypatch, defaults):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = _choices.user_file(EMULATOR)
    path.parent.mkdir()
    path.write_text(text)
    before = gpureduce.fast_table("emulator")
    with pytest.warns(RuntimeWarning, match="fast goes by its defaults: .*gpureduce-emulator.json"):
        _choices.load_for(_emulator, [EMULATOR.name])
    assert gpureduce.fast_table("emulator") == before


@pytest.mark.gpu
def test_on_the_card(tmp_path, monkeypatch):
    device = _backends.choose_device("cuda")
    before = gpureduce.fast_table("cuda")
    made = gpureduce.tune("cuda", [2**12, 2**18], 3, path=tmp_path / "t.json")
    try:
        assert gpureduce.fast_table("cuda") == list(made.choices)
    finally:
        _choices.use(before, device)


def test_users_without_a_home_have_the_shipped_tables(monkeypatch, defaults):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(_choices.Path, "home", homeless)
    before = gpureduce.fast_table("emulator")
    _choices.load_for(_emulator, [EMULATOR.name])
    assert gpureduce.fast_table("emulator") == before
