"""Where `auto` sends large host arrays: measured once, kept, inspected, pinned; by fake figures."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json

import numpy as np
import pytest

import gpureduce
from gpureduce import _backends, _calibration, cli

LEAST = 1 << 16
INTS = np.arange(LEAST // 4 + 1, dtype=np.int32)
FLOATS = INTS.astype(np.float32)


def figures(card_gb_s, card_latency_us=1.0):
    card, processors = _backends.devices()[-1].name, _calibration._processors()
    version = gpureduce.__version__
    return _calibration.Calibration(
        10.0, 1.0, card_gb_s, card_latency_us, card, processors, version
    )


@pytest.fixture
def card(monkeypatch, tmp_path):
    """The emulator plays the card; says how often it was measured, and takes fake figures."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(_calibration.PIN, raising=False)
    monkeypatch.setattr(_calibration, "_known", {})
    monkeypatch.setattr(_calibration, "LEAST_BYTES", LEAST)
    monkeypatch.setattr(_calibration, "_card", lambda: _backends.devices()[-1])

    class Fake:
        measured = 0
        figures = figures(100.0)
        folder = tmp_path / "gpureduce"

        def __call__(self, card):
            self.measured += 1
            if isinstance(self.figures, Exception):
                raise self.figures
            return self.figures

        @property
        def file(self):
            (found,) = self.folder.iterdir()
            return found

        def forget(self):
            _calibration._known.clear()

    fake = Fake()
    monkeypatch.setattr(_calibration, "_measure", fake)
    return fake


def went_to(array=INTS, **more):
    result = gpureduce.sum(array, **more)
    assert result.value == array.sum()
    return result.timing.backend


def test_from_which_size_on():
    assert figures(5.0).quicker_on_card_from is None
    assert figures(10.0).quicker_on_card_from is None
    assert figures(100.0).quicker_on_card_from == _calibration.LEAST_BYTES
    # 1e6 us are lost before the card begins, 0.09 us are won with each kB.
    edge = figures(100.0, 1e6 + 1).quicker_on_card_from
    assert edge == pytest.approx(1e6 / 0.09e-3, rel=1e-9)
    with pytest.raises(dataclasses.FrozenInstanceError):
        figures(5.0).card = ""


def test_auto_goes_by_the_figures(card):
    assert went_to() == "emulator" and went_to() == "emulator" and card.measured == 1
    value, timing = gpureduce.sum(INTS, timing=False)
    assert value == INTS.sum() and timing is None
    assert went_to(strategy="cpu") == went_to(device="cpu") == "cpu"
    assert went_to(INTS[:-2]) == "cpu"  # too small to be asked about
    card.figures = figures(1.0)
    assert gpureduce.calibrate() is card.figures
    assert went_to() == "cpu" and card.measured == 2
    card.figures = figures(100.0, 1e9)
    gpureduce.calibrate()
    assert went_to() == "cpu"


def test_floats_go_there_and_are_exact(card):
    result = gpureduce.sum(FLOATS)
    assert result.timing.backend == "emulator" and result.timing.strategy == "exact"
    assert result.value == np.float32(INTS.sum())


def test_small_arrays_ask_nobody(card, monkeypatch):
    card.figures = AssertionError("measured")
    monkeypatch.setattr(_calibration, "_card", card)
    assert went_to(INTS[:1000]) == "cpu"
    assert gpureduce.sum(INTS[:1000], timing=False).value == INTS[:1000].sum()


def test_it_is_kept_and_read(card):
    assert gpureduce.calibration() == card.figures
    said = json.loads(card.file.read_text())
    assert said["card_gb_s"] == 100.0 and said["quicker_on_card_from"] == LEAST
    assert card.file.name.startswith("calibration-") and card.file.suffix == ".json"
    card.forget()
    assert gpureduce.calibration() == card.figures and went_to() == "emulator"
    assert card.measured == 1
    card.figures = figures(2.0)
    assert gpureduce.calibrate() == card.figures
    card.forget()
    assert gpureduce.calibration() == card.figures and card.measured == 2


@pytest.mark.parametrize(
    "change",
    [
        {"version": "0.0.1"}, {"processors": 1000}, {"card": "another"}, {"schema": 2},
        {"cpu_gb_s": 0.0}, {"cpu_gb_s": "10"}, {"card_gb_s": -1.0}, {"card_gb_s": float("nan")},
        {"cpu_latency_us": None}, {"more": 1},
    ],
)  # fmt: skip
def test_what_is_not_of_this_machine_is_measured_anew(card, change):
    gpureduce.calibration()
    said = json.loads(card.file.read_text())
    card.file.write_text(json.dumps(said | change))
    card.forget()
    assert went_to() == "emulator" and card.measured == 2
    assert json.loads(card.file.read_text()) == said


@pytest.mark.parametrize("text", ["", "{", "[]", "1", "{}", '{"schema": 1}', "\0\0", "null"])
def test_a_broken_file_fails_no_sum(card, text):
    gpureduce.calibration()
    card.file.write_text(text)
    card.forget()
    assert went_to() == "emulator" and card.measured == 2


def test_a_file_that_is_no_text_fails_no_sum(card):
    gpureduce.calibration()
    card.file.write_bytes(b"\xff\xfe{")
    card.forget()
    assert went_to() == "emulator" and card.measured == 2


def test_a_folder_that_cannot_be_written_fails_no_sum(card, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert went_to() == "emulator" and went_to() == "emulator" and card.measured == 1


def test_a_card_that_cannot_be_measured_is_left_alone(card):
    card.figures = gpureduce.CudaError("no memory")
    assert went_to() == "cpu" and went_to() == "cpu" and card.measured == 1
    with pytest.raises(gpureduce.CudaError):
        gpureduce.calibrate()


def test_pinned(card, monkeypatch):
    card.figures = AssertionError("measured")
    for pin, where in (("cpu", "cpu"), ("cuda", "emulator")):
        monkeypatch.setenv("GPUREDUCE_HOST_ARRAYS", pin)
        assert went_to() == where
    monkeypatch.setenv("GPUREDUCE_HOST_ARRAYS", "gpu")
    with pytest.raises(ValueError, match="GPUREDUCE_HOST_ARRAYS must be cpu or cuda, not 'gpu'"):
        gpureduce.sum(INTS)
    monkeypatch.delenv("GPUREDUCE_HOST_ARRAYS")
    card.figures = figures(100.0)
    assert went_to() == "emulator"


def test_without_a_card_nobody_asks(card, monkeypatch):
    monkeypatch.setattr(_calibration, "_card", lambda: None)
    assert went_to() == "cpu" and gpureduce.calibration() is gpureduce.calibrate() is None
    monkeypatch.setenv("GPUREDUCE_HOST_ARRAYS", "cuda")
    assert went_to() == "cpu"
    assert card.measured == 0 and not card.folder.exists()


def test_the_emulator_by_name_is_no_card(monkeypatch):
    monkeypatch.setenv("GPUREDUCE_BACKEND", "emulator")
    assert _calibration._card() is None


def test_many_callers_measure_once(card):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: gpureduce.calibration(), range(16)))
    assert set(found) == {card.figures} and card.measured == 1


def test_measuring(monkeypatch):
    monkeypatch.setattr(_calibration, "_SMALL", 1 << 16)
    monkeypatch.setattr(_calibration, "_LARGE", 1 << 20)
    found = _calibration._measure(_backends.devices()[-1])
    assert min(found.cpu_gb_s, found.card_gb_s) > 0
    assert (found.card, found.processors) == ("gpureduce emulator", _calibration._processors())


def line_of(monkeypatch, small_us, large_us):
    """What `_line` makes of sums that take so long, were there no noise but in the first ones."""
    clock = 0.0

    def add(array):
        nonlocal clock
        clock += (small_us if array.nbytes == _calibration._SMALL else large_us) * 1e-6

    monkeypatch.setattr(_calibration.time, "perf_counter", lambda: clock)
    return _calibration._line(add)


def test_two_sizes_make_a_line(monkeypatch):
    small, large = _calibration._SMALL, _calibration._LARGE
    at_10_gb_s = (30 + small / 10e3, 30 + large / 10e3)
    assert line_of(monkeypatch, *at_10_gb_s) == pytest.approx((10, 30))
    # Noise: the small one took longer. The large one alone tells the speed.
    assert line_of(monkeypatch, 9000, 8000) == pytest.approx((large / 8000e3, 0))


def test_info_shows_it(card, capsys, monkeypatch):
    def said():
        assert cli.main(["info", "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert "to be measured" in said()["host_arrays"] and card.measured == 0
    gpureduce.calibration()
    assert said()["host_arrays"] == "cuda from 0 MiB"
    assert "cpu 10.0 GB/s + 1 us" in said()["calibration"]
    monkeypatch.setenv("GPUREDUCE_HOST_ARRAYS", "cpu")
    assert said()["host_arrays"] == "cpu (GPUREDUCE_HOST_ARRAYS)"


@pytest.mark.gpu
def test_on_the_card(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(_calibration, "_known", {})
    array = np.ones(2**24 + 1, np.int32)
    assert gpureduce.sum(array).value == array.size
    found = gpureduce.calibration()
    assert found.card == gpureduce.devices()[0].name
    assert min(found.cpu_gb_s, found.card_gb_s) > 0.1
