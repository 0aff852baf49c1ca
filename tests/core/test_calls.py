"""The call itself: result, timing, threads, leaks, the lists, the command line."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import gc
import importlib.metadata
import json
import os
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import gpureduce
from cases import KERNELS, array_of
from gpureduce.cli import main
from gpureduce.core import registry

A = np.arange(100_000, dtype=np.int32)
TOTAL = int(A.sum())


def test_result_unpacks_and_converts():
    result = gpureduce.sum(np.array([1.5, 2.5]))
    value, timing = result
    assert value == result.value == 4.0 and isinstance(value, np.float64)
    assert timing is result.timing
    assert (float(result), int(result), complex(result)) == (4.0, 4, 4 + 0j)


@pytest.mark.parametrize("strategy", [*KERNELS, "cpu", "numpy", "auto", "fast"])
def test_timing_adds_up(strategy):
    timing = gpureduce.sum(A, strategy, dtype="int32").timing
    parts = timing.kernel_ms + timing.h2d_ms + timing.d2h_ms
    assert 0 < timing.kernel_ms <= parts <= timing.total_ms
    assert timing.nbytes == A.nbytes
    assert timing.gb_s == pytest.approx(A.nbytes / timing.kernel_ms / 1e6)
    if strategy in KERNELS:
        assert timing.strategy == strategy
        assert timing.block == 256 and timing.grid >= 1 and timing.launches >= 1


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", [*KERNELS, "cub", "fast"])
def test_timing_on_the_card(strategy):
    timing = gpureduce.sum(A, strategy, dtype="int32", device="cuda").timing
    assert timing.source == "cuda_event" and timing.backend == "cuda"
    assert timing.kernel_ms + timing.h2d_ms + timing.d2h_ms <= timing.total_ms
    assert 0 < timing.percent_of_peak < 100


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", list(registry.DTYPES))
def test_cub(dtype, count_sum):
    for n in (1, 1000, 2**20 + 1):
        array = array_of(dtype, n)
        result = gpureduce.sum(array, "cub")
        expected = np.sum(array)
        if expected.dtype.kind in "iu":
            assert int(result.value) == int(expected)
        else:
            assert float(result.value) == pytest.approx(float(np.sum(array, dtype=float)), rel=1e-2)
        count_sum("cub", dtype)


@pytest.mark.parametrize("device", ["emulator", "cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_threads_at_once(device):
    strategies = ["cpu"] if device == "cpu" else KERNELS
    jobs = [(s, 1000 * k + 17) for s in strategies for k in range(1, 6)]

    def one(job):
        strategy, n = job
        dtype = "int32"
        return int(gpureduce.sum(A[:n], strategy, dtype=dtype, device=device).value)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = list(pool.map(one, jobs))
    assert got == [int(A[:n].sum(dtype=np.int32)) for _, n in jobs]


@pytest.mark.parametrize("strategy", ["sequential", "last_block", "cpu"])
def test_no_references_leak(strategy):
    array = np.arange(1000)
    names = [s for s in (array, strategy)]
    for _ in range(3):
        gpureduce.sum(array, strategy)
    gc.collect()
    before = [sys.getrefcount(n) for n in names]
    objects = len(gc.get_objects())
    for _ in range(200):
        gpureduce.sum(array, strategy)
        with pytest.raises(ValueError, match="block"):
            gpureduce.sum(array, "sequential", block=33)
    gc.collect()
    assert [sys.getrefcount(n) for n in names] == before
    assert len(gc.get_objects()) < objects + 100


@pytest.mark.gpu
def test_no_device_memory_leaks():
    cupy = pytest.importorskip("cupy")
    for strategy in KERNELS:
        gpureduce.sum(A, strategy, dtype="int32", device="cuda")
    before = cupy.cuda.runtime.memGetInfo()[0]
    for strategy in KERNELS * 3:
        gpureduce.sum(A, strategy, dtype="int32", device="cuda")
    assert cupy.cuda.runtime.memGetInfo()[0] == before


def test_cpu_gives_the_same_bits_for_any_number_of_threads():
    array = array_of("float32", 3_000_001)
    host = gpureduce._host
    bits = {host.cpu_sum(array, host.LOAD_F32, host.ACC_F32, 1, t)[0][:4] for t in (1, 2, 3, 8)}
    assert len(bits) == 1


def test_error_bound_is_tight_enough_to_mean_something():
    array = np.full(2**16, 0.1, np.float32)
    tree = gpureduce.sum(array, "sequential", device="emulator")
    loop = gpureduce.sum(array, "atomic_thread", device="emulator")
    assert gpureduce.error_bound(tree, 6553.6) < 0.05 < gpureduce.error_bound(loop, 6553.6)
    assert gpureduce.error_bound(gpureduce.sum(A), 1.0) == 0


def test_error_bound_says_what_it_needs():
    for strategy in ("auto", "cpu", "sequential"):
        result = gpureduce.sum([0.5], strategy)
        for magnitude in (-1.0, float("nan")):
            with pytest.raises(ValueError, match=f"0 or more, not {magnitude}"):
                gpureduce.error_bound(result, magnitude)
        with pytest.raises(ValueError, match="timing=False"):
            gpureduce.error_bound(gpureduce.sum([0.5], strategy, timing=False), 0.5)


def test_lists():
    rows = gpureduce.strategies()
    assert {s.kind for s in rows} == {
        "kernel",
        "broken",
        "library",
        "host",
        "everywhere",
        "choice",
    }
    assert not next(s for s in rows if s.name == "atomic_block").deterministic
    assert gpureduce.devices()[-1].id == "emulator"
    info = gpureduce.build_info()
    assert info["version"] == gpureduce.__version__ and "emulator" in info["devices"]
    assert gpureduce.__version__ == importlib.metadata.version("gpureduce")
    assert bool(info["why"]) == (gpureduce.devices()[0].backend == "emulator")


def run_cli(capsys, *arguments):
    status = main.main(arguments)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_command_sum(capsys, tmp_path):
    np.save(tmp_path / "a.npy", A)
    file = str(tmp_path / "a.npy")
    status, out, _ = run_cli(capsys, "sum", file, "--strategy", "reduce2", "cpu")
    assert status == 0 and out.count(str(TOTAL)) == 2 and "GB/s" in out
    status, out, _ = run_cli(
        capsys, "sum", file, "--strategy", "cascade", "--block", "64", "--grid", "3", "--json"
    )
    (row,) = json.loads(out)
    assert (row["value"], row["block"], row["grid"], row["strategy"]) == (TOTAL, 64, 3, "cascade")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1.5])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_command_sum_prints_what_json_has(capsys, tmp_path, value, dtype):
    file = str(tmp_path / "a.npy")
    np.save(file, np.array([value], dtype))
    _, out, _ = run_cli(capsys, "sum", file, "--strategy", "auto", "numpy", "--json")

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    for row in json.loads(out, parse_constant=refuse):
        plain = value if value == 1.5 else str(value)
        assert row["value"] == (plain if dtype != "complex64" else str(np.complex64(value).item()))


def test_command_errors(capsys, tmp_path):
    np.save(tmp_path / "a.npy", A)
    for arguments, words in [
        (["sum", str(tmp_path / "no.npy")], "No such file"),
        (["sum", str(tmp_path / "a.txt")], "only .npy"),
        (["sum", str(tmp_path / "a.npy"), "--strategy", "quick"], "there is no strategy 'quick'"),
        (["sum", str(tmp_path / "a.npy"), "--strategy", "cascade", "--block", "33"], "block must"),
    ]:
        status, out, err = run_cli(capsys, *arguments)
        assert status == 2 and words in err and not out


def test_broken_files_are_named(capsys, tmp_path):
    np.save(tmp_path / "a.npy", A)
    whole = (tmp_path / "a.npy").read_bytes()
    file = tmp_path / "broken.npy"
    for text in (
        b"", b"x", whole[:7], whole[:50], whole[:-1], whole.replace(b"{", b"(", 1),
        whole.replace(b"'<i4'", b"' , '"), whole.replace(b"'<i4'", b"'|O '"),
    ):  # fmt: skip
        file.write_bytes(text)
        status, out, err = run_cli(capsys, "sum", str(file))
        assert status == 2 and not out and err.count("\n") == 1
        assert err.startswith(f"gpureduce: {file} is no whole .npy file: ")
    status, _, err = run_cli(capsys, "sum", str(tmp_path / "a.npy"), "--dtype", ",")
    assert status == 2 and "there is no dtype ','" in err


def test_files_of_other_kinds_are_named(capsys, tmp_path):
    """An empty archive was summed as an array of nothing."""
    file = tmp_path / "other.npy"
    whole = tmp_path / "whole.npy"
    np.save(whole, A)
    header = whole.read_bytes()
    archive = tmp_path / "archive.npz"
    zipfile.ZipFile(tmp_path / "empty.npz", "w").close()
    np.savez(archive, a=A)
    np.save(tmp_path / "objects.npy", np.array([1, None], object))
    long = header[:8] + (60_000).to_bytes(2, "little") + header[10:] + b" " * 60_000
    for text, words in (
        ((tmp_path / "empty.npz").read_bytes(), "it is an archive, as numpy.savez writes"),
        (archive.read_bytes(), "it is an archive, as numpy.savez writes"),
        (pickle.dumps([1, 2]), "it does not begin as numpy.save begins one"),
        ((tmp_path / "objects.npy").read_bytes(), "its elements are Python objects, not numbers"),
        (header[:9], "reading"),
        (header[:40], "reading array header"),
        (long, "Header info length"),
    ):
        file.write_bytes(text)
        status, out, err = run_cli(capsys, "sum", str(file))
        assert status == 2 and not out and err.count("\n") == 1, err
        assert err.startswith(f"gpureduce: {file} is no whole .npy file: ") and words in err
    assert run_cli(capsys, "sum", str(archive))[2].endswith("only .npy files can be read\n")


def test_ctrl_c_ends_a_command_in_one_line(capsys, monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(gpureduce, "devices", interrupted)
    status, out, err = run_cli(capsys, "devices")
    assert (status, out, err) == (130, "", "gpureduce: broken off\n")


@pytest.mark.parametrize("command", ["strategies", "devices", "info", "tour"])
def test_commands(capsys, command):
    more = ["--n", "5000", "--device", "emulator"] if command == "tour" else []
    status, out, _ = run_cli(capsys, command, *more)
    assert (status == 0 and "emulator" in out) or command == "strategies"
    status, out, _ = run_cli(capsys, command, "--json", *more)
    assert status == 0 and json.loads(out)


def test_module_and_script_are_the_same():
    done = subprocess.run(
        [sys.executable, "-P", "-m", "gpureduce", "devices"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "emulator" in done.stdout


def test_integers_need_no_bound_whoever_adds_them():
    value, timing = gpureduce.sum(A)
    shared = dataclasses.replace(timing, strategy="cpu+tiles")
    assert gpureduce.error_bound(gpureduce.SumResult(value, shared), 1.0) == 0


def command_line(*arguments, **how):
    """It run as a program of its own, which does not write each line at once."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [sys.executable, "-P", "-m", "gpureduce", *arguments],
        env={**env, **how.pop("env", {})},
        stderr=subprocess.PIPE,
        text=True,
        **how,
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_output_that_cannot_be_written_is_told_in_one_line():
    with open("/dev/full", "w") as full:
        done = command_line("strategies", stdout=full)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("gpureduce: ") and "No space left" in done.stderr


def test_a_reader_that_is_gone_ends_it_quietly():
    reading, writing = os.pipe()
    os.close(reading)
    done = command_line("strategies", stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_locale_without_arrows(tmp_path):
    picture = tmp_path / "a.svg"
    done = command_line(
        "explain", "sum_idx", "sum_seq", "--svg", str(picture),
        env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"},
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "") and done.stdout
    assert picture.read_text(encoding="utf-8").startswith("<svg")


def test_sizes_of_the_tour_are_written_as_elsewhere(capsys):
    status, out, _ = run_cli(capsys, "tour", "--n", "2^10", "--device", "emulator", "--json")
    assert status == 0 and json.loads(out)


def test_bfloat16_says_what_it_needs(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    status, out, err = run_cli(
        capsys, "bench", "--dtypes", "bfloat16", "--device", "emulator", "--sizes", "100"
    )
    assert status == 2 and not out and "pip install ml_dtypes" in err
