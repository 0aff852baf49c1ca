"""Where `auto` sends large host arrays: measured once, kept, inspected, pinned; by fake figures."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import threading

import numpy as np
import pytest

import gpureduce
from cases import array_of, same_bits
from gpureduce.bench.suites import strategies
from gpureduce.core import any_array, calibration, devices, on_several, summation
from gpureduce.core.calibration import Way

LEAST = 1 << 16
INTS = np.arange(LEAST // 4 + 1, dtype=np.int32)
FLOATS = INTS.astype(np.float32)


def figures(card_gb_s, card_latency_us=1.0, both_gb_s=1.0, card_share=0.25):
    """Of a machine whose processors do 10 GB/s."""
    cpu, cuda = Way(0.0, 10.0, 1.0), Way(1.0, card_gb_s, card_latency_us)
    both = Way(card_share, both_gb_s, 1.0)
    card, processors = devices.devices()[-1].name, calibration._processors()
    return gpureduce.Calibration(cpu, cuda, both, card, processors, gpureduce.__version__)


@pytest.fixture
def card(monkeypatch, tmp_path):
    """The emulator plays the card; says how often it was measured, and takes fake figures."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(calibration.PIN, raising=False)
    monkeypatch.setattr(calibration, "_known", {})
    monkeypatch.setattr(calibration, "LEAST_SHARED_BYTES", LEAST)
    for module in (summation, any_array):
        monkeypatch.setattr(module, "LEAST_SHARED_BYTES", LEAST)
    monkeypatch.setattr(calibration, "_card", lambda: devices.devices()[-1])

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
            calibration._known.clear()

    fake = Fake()
    monkeypatch.setattr(calibration, "_measure", fake)
    return fake


def went_to(array=INTS, **more):
    result = gpureduce.sum(array, **more)
    assert result.value == array.sum()
    return result.timing.backend


def test_which_way_is_quickest():
    large = 1 << 40
    assert figures(5.0).quickest(large) == figures(10.0).quickest(large) == "cpu"
    assert figures(100.0).quickest(calibration.LEAST_SHARED_BYTES) == "cuda"
    assert figures(100.0).quickest(calibration.LEAST_SHARED_BYTES - 1) == "cpu"
    # 1e6 us are lost before the card begins, 0.09 us are won with each kB.
    late, edge = figures(100.0, 1e6 + 1), int(1e6 / 0.09e-3)
    assert (late.quickest(edge - 9), late.quickest(edge + 9)) == ("cpu", "cuda")
    # Both must save a tenth of what the better of the two takes.
    assert figures(5.0, both_gb_s=11.0).quickest(large) == "cpu"
    assert figures(5.0, both_gb_s=11.2).quickest(large) == "both"
    assert figures(20.0, both_gb_s=22.0).quickest(large) == "cuda"
    assert figures(20.0, both_gb_s=22.3).quickest(large) == "both"
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


def test_the_calibration_is_kept_and_read(card):
    assert gpureduce.calibration() == card.figures
    said = json.loads(card.file.read_text())
    assert said["cuda"] == {"card_share": 1.0, "gb_s": 100.0, "latency_us": 1.0}
    assert card.file.name.startswith("calibration-") and card.file.suffix == ".json"
    card.forget()
    assert gpureduce.calibration() == card.figures and went_to() == "emulator"
    assert card.measured == 1
    card.figures = figures(2.0)
    assert gpureduce.calibrate() == card.figures
    card.forget()
    assert gpureduce.calibration() == card.figures and card.measured == 2


WAY = {"card_share": 0.5, "gb_s": 10.0, "latency_us": 1.0}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        # Of another machine or version: nothing is wrong with it.
        *(({name: value}, None) for name, value in (
            ("version", "0.0.1"), ("processors", 1000), ("card", "another"), ("schema", 1))),
        *((text, "") for text in (b"", b"[]", b'{"schema": 2}', b"[" * 10**5, b"\xff{")),
        ({"cpu": WAY | {"gb_s": 0.0}}, "cpu.gb_s must be above 0, not 0.0"),
        ({"cuda": WAY | {"gb_s": 10**400}}, "cuda.gb_s must be a finite number, not 1000"),
        ({"cuda": WAY | {"gb_s": -1.0}}, "cuda.gb_s must be above 0, not -1.0"),
        ({"cuda": WAY | {"card_share": 1.5}}, "cuda.card_share must be from 0 to 1, not 1.5"),
        ({"both": WAY | {"card_share": -0.5}}, "both.card_share must be from 0 to 1, not -0.5"),
        ({"both": {"card_share": 0.5, "gb_s": 10.0}}, "both.latency_us is missing"),
        ({"more": 1}, "more is not a field: there are cpu, cuda, both, card"),
    ],
    ids=lambda one: None if isinstance(one, str) else str(one)[:40],
)  # fmt: skip
def test_a_file_that_is_not_used_is_written_anew(card, change, field):
    """A sum measures the machine; what is wrong in the file is named."""
    gpureduce.calibration()
    said = json.loads(card.file.read_text())
    changed = change if isinstance(change, bytes) else json.dumps(said | change).encode()
    card.file.write_bytes(changed)
    card.forget()
    warns = pytest.warns(RuntimeWarning, match="the calibration is not used: ")
    with contextlib.nullcontext([]) if field is None else warns as warned:
        assert went_to() == "emulator" and card.measured == 2
    assert len(warned) == (field is not None)
    assert all(f"{card.file}: {field}" in str(one.message) for one in warned)
    assert json.loads(card.file.read_text()) == said


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
    with pytest.raises(
        ValueError, match="GPUREDUCE_HOST_ARRAYS must be cpu, cuda or both, not 'gpu'"
    ):
        gpureduce.sum(INTS)
    monkeypatch.delenv("GPUREDUCE_HOST_ARRAYS")
    card.figures = figures(100.0)
    assert went_to() == "emulator"


def test_without_a_card_nobody_asks(card, monkeypatch):
    monkeypatch.setattr(calibration, "_card", lambda: None)
    assert went_to() == "cpu" and gpureduce.calibration() is gpureduce.calibrate() is None
    monkeypatch.setenv("GPUREDUCE_HOST_ARRAYS", "cuda")
    assert went_to() == "cpu"
    assert card.measured == 0 and not card.folder.exists()


def test_the_emulator_by_name_is_no_card(monkeypatch):
    monkeypatch.setenv("GPUREDUCE_BACKEND", "emulator")
    assert calibration._card() is None


def test_many_callers_measure_once(card):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: gpureduce.calibration(), range(16)))
    assert set(found) == {card.figures} and card.measured == 1


def test_nobody_waits_for_a_measurement(card, monkeypatch):
    """`auto` takes the processors meanwhile; so does a child, whose parent measures on."""
    begun, go_on = threading.Event(), threading.Event()
    seen = card.figures

    def slow(_):
        begun.set()
        assert go_on.wait(60)
        return seen

    monkeypatch.setattr(calibration, "_measure", slow)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(went_to)
        assert begun.wait(60)
        assert went_to() == "cpu"
        child = os.fork()
        if not child:
            calibration._measure = lambda _: seen
            os._exit(0 if went_to() == "emulator" else 1)
        assert os.waitpid(child, 0)[1] == 0
        go_on.set()
        assert first.result() == "emulator"
    assert went_to() == "emulator"


def test_a_signal_handler_may_sum_during_a_measurement(card, monkeypatch):
    outer = card.figures

    def interrupted(_):
        if calibration._known or card.measured:
            return outer
        card.measured = 1
        assert went_to() == "emulator"  # as a handler would, on the same thread
        return outer

    monkeypatch.setattr(calibration, "_measure", interrupted)
    assert went_to() == "emulator"


def small_measurements(monkeypatch):
    monkeypatch.setattr(on_several, "_LEAST_BYTES", 1 << 10)
    monkeypatch.setattr(calibration, "_SMALL", 1 << 16)
    monkeypatch.setattr(calibration, "_LARGE", 1 << 20)


def test_measuring(monkeypatch):
    small_measurements(monkeypatch)
    found = calibration._measure(devices.devices()[-1])
    ways = (found.cpu, found.cuda, found.both)
    assert min(way.gb_s for way in ways) > 0 and min(way.latency_us for way in ways) >= 0
    assert (found.cpu.card_share, found.cuda.card_share) == (0, 1)
    assert 0 < found.both.card_share < 1
    assert (found.card, found.processors) == ("gpureduce emulator", calibration._processors())


def way_of(monkeypatch, small_us, large_us):
    """The calibration of sums that take these times."""
    clock = 0.0

    def add(array):
        nonlocal clock
        clock += (small_us if array.nbytes == calibration._SMALL else large_us) * 1e-6

    monkeypatch.setattr(calibration.time, "perf_counter", lambda: clock)
    array = np.zeros(calibration._LARGE // 4, np.int32)
    return dataclasses.astuple(calibration._way(0.5, array, add))


def test_two_sizes_make_a_line(monkeypatch):
    small_measurements(monkeypatch)
    small, large = calibration._SMALL, calibration._LARGE
    at_10_gb_s = (30 + small / 10e3, 30 + large / 10e3)
    assert way_of(monkeypatch, *at_10_gb_s) == pytest.approx((0.5, 10, 30))
    # Noise: the small one took longer. The large one alone tells the speed.
    assert way_of(monkeypatch, 900, 800) == pytest.approx((0.5, large / 800e3, 0))


# --- both at once ---------------------------------------------------------------------------------


@pytest.fixture
def both(card, monkeypatch):
    monkeypatch.setattr(on_several, "_rates", {})
    monkeypatch.setattr(on_several, "_alone", {})
    monkeypatch.setattr(on_several, "_LEAST_BYTES", 1 << 12)
    card.figures = figures(20.0, both_gb_s=30.0)
    return card


@pytest.mark.parametrize(
    "dtype", ["int8", "bool", "uint16", "int32", "uint64", "int64", "float16", "complex128"]
)
@pytest.mark.parametrize("share", [0.0001, 0.25, 0.9999])
def test_sums_by_both(both, dtype, share):
    """test_host_arrays.py has more of such sums, their errors and interruptions."""
    both.figures = figures(20.0, both_gb_s=30.0, card_share=share)
    array = array_of(dtype, 70_001 if np.dtype(dtype).itemsize > 1 else 3 * LEAST)
    if dtype == "uint64":
        array |= np.uint64(1 << 63)  # it wraps around
    value, timing = gpureduce.sum(array)
    assert same_bits(value, gpureduce.sum(array, device="cpu").value)
    if np.dtype(dtype).kind in "fc":
        assert timing.strategy == "exact"
    else:
        assert value == array.sum() and timing.strategy.startswith("cpu+")
    assert timing.backend == "cpu+emulator"
    assert timing.n == array.size and 0 < timing.kernel_ms <= timing.total_ms
    assert same_bits(gpureduce.sum(array, timing=False).value, value)


def test_records_of_measurements_have_the_calibration(card):
    finish = strategies.suite_of([], str, None, []).finish
    assert finish({"rows": []}) == {"rows": []}
    gpureduce.calibration()
    assert finish({"rows": []})["calibration"] == dataclasses.asdict(card.figures)


def test_info_shows_the_calibration(card, monkeypatch):
    assert "to be measured" in calibration.summary()["host_arrays"] and card.measured == 0
    gpureduce.calibration()
    told = calibration.summary()
    assert told["host_arrays"] == "cuda at 64 MiB, cuda at 1 GiB, cuda at 16 GiB"
    assert "cpu 10.0 GB/s + 1 us; " in told["calibration"]
    assert "both, 25% of it on the card, 1.0 GB/s" in told["calibration"]
    monkeypatch.setenv("GPUREDUCE_HOST_ARRAYS", "cpu")
    assert calibration.summary() == {"host_arrays": "cpu (GPUREDUCE_HOST_ARRAYS)"}
    monkeypatch.setenv("GPUREDUCE_HOST_ARRAYS", "cuda")
    monkeypatch.setattr(calibration, "_card", lambda: None)
    assert calibration.summary() == {"host_arrays": "cpu: there is no GPU"}


@pytest.mark.gpu
@pytest.mark.alone
def test_on_the_card(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calibration, "_known", {})
    array = np.ones(2**24 + 1, np.int32)
    assert gpureduce.sum(array).value == array.size
    found = gpureduce.calibration()
    assert found.card == gpureduce.devices()[0].name
    assert min(way.gb_s for way in (found.cpu, found.cuda, found.both)) > 0.1


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["int8", "int32", "float32", "float64"])
@pytest.mark.alone
def test_both_on_the_card(monkeypatch, tmp_path, dtype):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("GPUREDUCE_HOST_ARRAYS", "both")
    monkeypatch.setattr(on_several, "_SLAB_BYTES", 50_000_000)
    array = np.tile(array_of(dtype, 1_000_003), 70)
    result = gpureduce.sum(array)
    assert result.timing.backend == "cpu+cuda"
    assert result.value.tobytes() == gpureduce.sum(array, device="cpu").value.tobytes()


def test_users_without_a_home_get_no_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    calibration._keep(calibration.Path("~/.cache/x.json"), figures(1.0))
    assert not list(tmp_path.iterdir())
