"""The measurements, text and record of ``gpureduce bench --devices``, on emulated devices."""

from __future__ import annotations

import json

import numpy as np
import pytest
from test_records import DEPENDS

from gpureduce.bench import record
from gpureduce.bench.contenders.parts import Pattern
from gpureduce.bench.suites import several_devices
from gpureduce.cli.main import main
from gpureduce.core import devices, on_several


@pytest.fixture
def three_devices(monkeypatch):
    module = devices.emulator()
    module.set_device_count(3)
    monkeypatch.setattr(several_devices, "_HOST_EMULATED", (1 << 15,))
    monkeypatch.setattr(on_several, "_LEAST_BYTES", 1 << 12)
    monkeypatch.setattr("gpureduce.bench.clocks._CALLS_NS", 1000)
    yield
    module.free_scratch()
    module.set_device_count(1)


def test_the_command(three_devices, capsys, tmp_path):
    path = tmp_path / "devices.json"
    how = ["--devices", "emulator:*", "--sizes", "2^10", "--dtypes", "float32", "--repeats", "3"]
    assert main(["bench", *how, "--output", str(path)]) == 0
    text = capsys.readouterr().out
    assert "Sums of equal parts, one on each device" in text and "of linear" in text
    assert "us per further device" in text and "they tell nothing about a card" in text
    made = record.load(path, "devices")
    assert (made["kind"], made["schema"]) == ("devices", 2)
    assert made["cards"] == ["gpureduce emulator"] * 3 and made["trees"] and made["versions"]
    rows = [row for row in made["rows"] if row["measure"] == "parts"]
    assert [(row["strategy"], row["devices"]) for row in rows] == [
        (name, count) for count in (1, 2, 3) for name in ("fast", "exact")
    ]
    for row in rows:
        assert row["nbytes"] == 4096 * row["devices"] == 4 * row["n"]
        assert row["low_us"] <= row["median_us"] <= row["high_us"] and row["repeats"] == 3
        assert row["gb_s"] == pytest.approx(row["nbytes"] / row["median_us"] / 1e3)
        assert (row["linear"] == 1) == (row["devices"] == 1) or row["linear"] > 0
        assert (row["added_us"] is None) == (row["devices"] == 1)
    host = [row for row in made["rows"] if row["measure"] == "host"]
    assert [row["strategy"] for row in host] == [
        "cpu", "emulator:0", "3 devices", "cpu + 3 devices"
    ]  # fmt: skip
    assert main(["bench", *how, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "devices"
    assert "devices_" in DEPENDS


def test_counts_are_powers_of_two_and_all():
    assert [several_devices.counts(n) for n in (1, 2, 3, 4, 8)] == [
        [1], [1, 2], [1, 2, 3], [1, 2, 4], [1, 2, 4, 8]
    ]  # fmt: skip


def test_a_wrong_sum_is_not_timed():
    pattern = Pattern("float32", 1 << 16)
    right = pattern.array().sum(dtype=np.float64)
    pattern.check("fast", 3 * right, 3)
    for wrong in (2 * right, float("nan"), -3 * right):
        with pytest.raises(ArithmeticError, match="fast of 3 parts gave"):
            pattern.check("fast", wrong, 3)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--devices", "cpu"], "--devices takes GPUs, or emulated ones"),
        (["--devices", "emulator:7"], "there is no device 'emulator:7'"),
        (["--devices", "emulator", "--csv"], "--csv is not for --devices, which takes --sizes"),
        (["--devices", "emulator", "--output", "x.csv"], "--output must end in .json"),
    ],
)
def test_errors(capsys, options, text):
    assert main(["bench", *options]) == 2
    assert text in capsys.readouterr().err


def test_devices_without_names_are_all_gpus(capsys, monkeypatch):
    seen = []
    monkeypatch.setattr(several_devices, "devices_of", lambda names: seen.append(names) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["bench", "--devices"])
    assert seen == [[]]


def test_a_row_is_compared_with_the_same_parts_on_one_device():
    """NCCL, which adds nothing up on one device, is compared with the sums of PyTorch there."""

    def row(strategy, devices, us):
        return {"measure": "call", "dtype": "float32", "nbytes": 4096 * devices,
                "strategy": strategy, "devices": devices, "median_us": us}  # fmt: skip

    rows = [row("torch", 1, 20.0), row("torch", 4, 26.0), row("nccl", 4, 50.0)]
    found = several_devices.scaled({"rows": [*rows, {"measure": "host"}]})["rows"]
    assert [one["linear"] for one in found] == [1.0, 20 / 26, 0.4, None]
    assert [one["added_us"] for one in found] == [None, 2.0, 10.0, None]
