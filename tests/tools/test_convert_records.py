"""Records of schema 1 in schema 2."""

from __future__ import annotations

import json

import convert_records
import pytest

from cases import MADE

MATRIX = {
    "rows": 4,
    "columns": 8,
    "axis": 1,
    "batches": 1,
    "dtype": "float32",
    "kernel": "row_warp",
}
SEGMENTS = {"n": 100, "segments": 5, "ids": "sorted", "dtype": "float32", "columns": 1}
CALLED = {"measure": "call", "strategy": "fast", "dtype": "float32", "n": 1, "nbytes": 4}


def times(*rows):
    """What a row says of its time."""
    return [
        (row["measure"], row["strategy"], row["n"], row["source"], row["median_us"]) for row in rows
    ]


@pytest.mark.parametrize(
    ("kind", "old", "found"),
    [
        ("axis", {"rows": [
            {"dtype": "float32", "nbytes": 256, "ms": {"copy": 0.5}},
            MATRIX | {"part": "shapes", "nbytes": 144, "ms": {"fast": 0.25, "JAX, whole call": 2}},
            MATRIX | {"part": "calls", "nbytes": 144, "ms": {"fast": 0.125}},
        ]}, [
            ("shapes", "copy", 32, "cuda_event", 500), ("shapes", "fast", 32, "cuda_event", 250),
            ("shapes", "JAX, whole call", 32, "perf_counter", 2000),
            ("calls", "fast", 32, "perf_counter", 125),
        ]),
        ("segments", {"rows": [
            SEGMENTS | {"ms": {"exact": 0.5, "jax segment_sum": 1}, "clocked": [], "failed": {}}
        ]}, [
            ("segments", "exact", 100, "cuda_event", 500),
            ("segments", "jax segment_sum", 100, "perf_counter", 1000),
        ]),
        ("devices", {"rows": [
            {"measure": "call", "contender": name, "dtype": "float32", "n": 8 * count,
             "nbytes": 32 * count, "devices": count, "median_us": us, "linear": 0.0}
            for name, count, us in (("torch", 1, 10.0), ("torch", 2, 12.5), ("nccl", 2, 20.0))
        ]}, [
            ("call", "torch", 8, "perf_counter", 10.0), ("call", "torch", 16, "perf_counter", 12.5),
            ("call", "nccl", 16, "perf_counter", 20.0),
        ]),
        ("exact", {
            "peak_gb_s": 3000.0, "targets": [1],
            "kernels": [{"dtype": "float64", "data": "bits", "nbytes": 800, "us": {"exact": 2.0}}],
            "small": [{"dtype": "float64", "data": "normal", "nbytes": 8, "us": {"fast": 1.0}}],
            "calls": [{"dtype": "float16", "n": 100, "us": {"exact": 9.0}}],
        }, [
            ("kernel", "exact", 100, "cuda_event", 2.0), ("kernel", "fast", 1, "cuda_event", 1.0),
            ("call", "exact", 100, "perf_counter", 9.0),
        ]),
        ("exact", {"cpu": [
            {"dtype": "float32", "data": "bits", "n": 1000,
             "exact": {"ns": 0.5, "low": 0.25, "high": 0.75}, "of_fsum": 3.0}
        ]}, [("thread", "exact", 1000, "thread_time", 0.5)]),
        ("bench", {"rows": [CALLED | {"source": "perf_counter", "median_us": 5.0}]},
         [("call", "fast", 1, "perf_counter", 5.0)]),
    ],
)  # fmt: skip
def test_rows(kind, old, found, tmp_path, monkeypatch):
    path, other = tmp_path / "record.json", tmp_path / "tests.json"
    path.write_text(json.dumps(MADE | {"schema": 1, "kind": kind} | old))
    other.write_text('{"schema": 1, "kind": "tests"}')
    monkeypatch.setattr("sys.argv", ["convert_records", str(path), str(other)])
    convert_records.main()
    made = json.loads(path.read_text())
    assert made["schema"] == 2 and made["card"] == MADE["card"] and "targets" not in made
    assert times(*made["rows"]) == found
    last = made["rows"][-1]
    if kind == "devices":
        assert (last["linear"], last["added_us"]) == (0.5, 10.0)
    elif kind == "bench":
        assert last["way"] == "timing=False"
    elif "cpu" in old:
        assert (last["low_us"], last["high_us"], made["device"]) == (0.25, 0.75, "cpu")
    kept = path.read_text()
    convert_records.main()  # once is enough
    assert path.read_text() == kept and other.read_text() == '{"schema": 1, "kind": "tests"}'
