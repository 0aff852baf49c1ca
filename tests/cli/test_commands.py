"""The commands that list and add up, what all commands have in common, and wrong words."""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import gpureduce
from cases import run_python

A = np.arange(100_000, dtype=np.int32)
TOTAL = int(A.sum())


@pytest.fixture
def file(tmp_path):
    np.save(tmp_path / "a.npy", A)
    return tmp_path / "a.npy"


def test_sum_along_an_axis(command, tmp_path):
    array = np.arange(6000, dtype=np.float32).reshape(2, 3000)
    np.save(tmp_path / "a.npy", array)
    status, out, _ = command("sum", tmp_path / "a.npy", "--axis", "1", "--strategy", "auto", "cpu")
    assert status == 0 and "float32[2]" in out
    assert f"auto:\n{array.sum(axis=1)}" in out and f"cpu:\n{array.sum(axis=1)}" in out
    assert "..." in command("sum", tmp_path / "a.npy", "--axis", "0")[1]
    (row,) = json.loads(
        command("sum", tmp_path / "a.npy", "--axis", "-1", "--keepdims", "--json")[1]
    )
    assert row["value"] == [[4498500.0], [13498500.0]]
    (row,) = json.loads(command("sum", tmp_path / "a.npy", "--axis", "0", "--json")[1])
    assert row["value"] == array.sum(axis=0).tolist()
    (row,) = json.loads(command("sum", tmp_path / "a.npy", "--axis", "0,1", "--json")[1])
    assert row["value"] == 17997000
    status, _, err = command("sum", tmp_path / "a.npy", "--axis", "2")
    assert status == 2 and "axis 2 is out of bounds" in err
    assert command("sum", tmp_path / "a.npy", "--axis", "rows")[0] == 2
    written = ["--output", tmp_path / "sums.npy"]
    assert command("sum", tmp_path / "a.npy", "--axis", "0", *written)[0] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "sums.npy"), array.sum(axis=0))
    status, _, err = command("sum", tmp_path / "a.npy", "--strategy", "cpu", "numpy", *written)
    assert status == 2 and "--output writes the sums of one strategy" in err
    assert command("sum", tmp_path / "a.npy", "--output", "")[0] == 2  # it wrote nothing


def test_sums_by_segment(command, tmp_path):
    np.save(tmp_path / "v.npy", np.array([[1e16, 1], [1, 2], [-1e16, 3]]))
    np.save(tmp_path / "i.npy", np.array([0, 0, 0]))
    np.save(tmp_path / "o.npy", np.array([0, 1, 3]))
    files = [tmp_path / "v.npy", tmp_path / "i.npy"]
    status, out, _ = command("segments", *files)
    assert status == 0 and "float64[1, 2]" in out and "[[1. 6.]]" in out and "exact" in out
    row = json.loads(command("segments", *files, "--num-segments", "2", "--json")[1])
    assert row["value"] == [[1.0, 6.0], [0.0, 0.0]] and row["strategy"] == "exact"
    row = json.loads(command("segments", *files, "--device", "emulator", "--json")[1])
    assert row["value"] == [[1.0, 6.0]] and row["backend"] == "emulator"
    offsets = [tmp_path / "v.npy", tmp_path / "o.npy", "--offsets", "--json"]
    row = json.loads(command("segments", *offsets, "--strategy", "numpy", "--dtype", "f8")[1])
    assert row["value"] == [[1e16, 1.0], [1 - 1e16, 5.0]] and row["backend"] == "numpy"
    status, _, err = command("segments", *files, "--num-segments", "0")
    assert status == 2 and "segment_ids[0] is 0" in err and err.count("\n") == 2
    assert command("segments", tmp_path / "v.npy", tmp_path / "no.npy")[0] == 2
    assert command("segments", *files, "--output", tmp_path / "sums.npy")[0] == 0
    assert np.load(tmp_path / "sums.npy").tolist() == [[1.0, 6.0]]
    assert command("segments", *files, "--output", tmp_path / "no" / "sums.npy")[0] == 2
    assert command("segments", *files, "--output", "")[0] == 2


def test_stats(command, tmp_path):
    file = tmp_path / "a.npy"
    np.save(file, np.array([[1.0, np.nan, 3e200], [4, 5, 6]]))
    found = json.loads(command("stats", file, "--json")[1])
    assert [found[key] for key in ("n", "nan", "min", "max", "sum")] == [5, 1, 1.0, 3e200, 3e200]
    assert found["std"] == 1.2e200 and found["norm"] == 3e200
    found = json.loads(command("stats", file, "--axis", "0", "--ddof", "1", "--json")[1])
    assert found["n"] == [2, 1, 2] and found["mean"][:2] == [2.5, 5.0] and found["std"][1] == "nan"
    assert "at  n  nan  min" in command("stats", file, "--axis", "0")[1]
    np.save(file, np.ones((30, 2)) * 1j)
    shown = command("stats", file, "--axis", "1")[1]
    assert "and 10 more: --json shows all" in shown and "min" not in shown
    np.save(file, np.empty((0, 3), np.float32))
    assert json.loads(command("stats", file, "--axis", "0", "--json")[1])["min"] == "nan"
    for wrong, text in (
        (["--axis", "2"], "axis 2 is out of bounds"),
        (["--ddof", "nan"], "finite"),
    ):
        status, _, err = command("stats", file, *wrong)
        assert status == 2 and text in err


def test_sum(command, file):
    status, out, _ = command("sum", file, "--strategy", "reduce2", "cpu")
    assert status == 0 and out.count(str(TOTAL)) == 2 and "GB/s" in out
    launch = ["--strategy", "cascade", "--block", "64", "--grid", "3"]
    (row,) = json.loads(command("sum", file, *launch, "--json")[1])
    assert (row["value"], row["block"], row["grid"], row["strategy"]) == (TOTAL, 64, 3, "cascade")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1.5])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_values_that_json_lacks_are_strings(command, tmp_path, value, dtype):
    np.save(tmp_path / "a.npy", np.array([value], dtype))
    _, out, _ = command("sum", tmp_path / "a.npy", "--strategy", "auto", "numpy", "--json")

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    for row in json.loads(out, parse_constant=refuse):
        plain = value if value == 1.5 else str(value)
        assert row["value"] == (plain if dtype != "complex64" else str(np.complex64(value).item()))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("no.npy", [], "there is no file "),
        ("a.txt", [], "only .npy files can be read\n"),
        ("a.npy", ["--strategy", "quick"], "there is no strategy 'quick'"),
        ("a.npy", ["--strategy", "cascade", "--block", "33"], "block must"),
        ("a.npy", ["--dtype", ","], "there is no dtype ','"),
    ],
)
def test_errors_of_sum(command, file, name, options, words):
    status, out, err = command("sum", file.with_name(name), *options)
    assert status == 2 and words in err and not out


def broken_files(folder):
    """The bytes of files that are not a whole array, and what the error says of each."""
    np.save(folder / "whole.npy", A)
    np.save(folder / "objects.npy", np.array([1, None], object))
    np.savez(folder / "archive.npz", a=A)
    zipfile.ZipFile(folder / "empty.npz", "w").close()
    whole, objects, archive, empty = (
        (folder / name).read_bytes()
        for name in ("whole.npy", "objects.npy", "archive.npz", "empty.npz")
    )
    header = whole[:8] + (60_000).to_bytes(2, "little") + whole[10:] + b" " * 60_000
    for text in (
        b"", b"x", whole[:7], whole[:50], whole[:-1], whole.replace(b"{", b"(", 1),
        whole.replace(b"'<i4'", b"' , '"), whole.replace(b"'<i4'", b"'|O '"),
    ):  # fmt: skip
        yield text, ""
    yield empty, "is an archive, as numpy.savez writes"  # it was summed as an empty array
    yield archive, "is an archive, as numpy.savez writes"
    yield pickle.dumps([1, 2]), "its first bytes are not those of one"
    yield objects, "its elements are Python objects, not numbers"
    yield whole[:9], "reading"
    yield whole[:40], "reading array header"
    yield header, "Header info length"
    wide = io.BytesIO()
    row = {"descr": "<f8", "fortran_order": False, "shape": (2**40, 2**20)}
    np.lib.format.write_array_header_1_0(wide, row)
    yield wide.getvalue(), "must be positive"  # and no RuntimeWarning


def test_files_that_are_not_a_whole_array_are_named(command, tmp_path):
    file = tmp_path / "broken.npy"
    for text, words in broken_files(tmp_path):
        file.write_bytes(text)
        status, out, err = command("sum", file)
        assert status == 2 and not out and err.count("\n") == 1, err
        assert err.startswith(f"gpureduce: {file} is ") and words in err


@pytest.mark.parametrize("mode", [[], ["--axis"], ["--scan"], ["--segments"]])
def test_a_bench_of_nothing_is_refused_in_plain_words(command, mode):
    said = "gpureduce: sizes must be from 1 to 2**63 - 1, not 0\nusage: gpureduce bench [options]\n"
    assert command("bench", *mode, "--sizes", 0) == (2, "", said)


@pytest.mark.parametrize("name", ["sum", "segments"])
def test_a_file_that_becomes_shorter_is_named(command, tmp_path, monkeypatch, name):
    """Its last page is read as zeros."""
    file, ids = tmp_path / "short.npy", tmp_path / "ids.npy"
    np.save(file, np.ones(400))  # no more than a page: beyond it is SIGBUS
    np.save(ids, np.zeros(400, np.int64))
    words = {"sum": (name, file), "segments": (name, file, ids)}[name]
    assert command(*words)[0] == 0
    call = {"sum": "sum", "segments": "segment_sum"}[name]
    add = getattr(gpureduce, call)

    def cut_and_add(*arguments, **more):
        os.truncate(file, file.stat().st_size - 400)
        return add(*arguments, **more)

    monkeypatch.setattr(gpureduce, call, cut_and_add)
    said = f"gpureduce: {file} became shorter while it was read\n"
    assert command(*words) == (2, "", said)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,)])
def test_files_of_few_elements(command, tmp_path, shape):
    file = tmp_path / "few.npy"
    np.save(file, np.ones(shape))
    assert command("sum", file)[0] == 0


def test_a_pipe_is_refused_before_it_is_read(command, tmp_path):
    pipe = tmp_path / "pipe.npy"
    os.mkfifo(pipe)
    status, out, err = command("sum", pipe)
    assert (status, out) == (2, "") and err.startswith(f"gpureduce: {pipe} is a pipe: ")


def test_ctrl_c_ends_a_command_in_one_line(command, monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(gpureduce, "devices", interrupted)
    assert command("devices") == (130, "", "gpureduce: broken off\n")


@pytest.mark.parametrize("name", ["strategies", "devices", "info"])
def test_lists(command, name):
    status, out, _ = command(name)
    assert status == 0 and ("emulator" in out or name == "strategies")
    status, out, _ = command(name, "--json")
    assert status == 0 and json.loads(out)


def test_info_is_a_line_per_fact(command):
    """The trees of the sources are for records: JSON has them."""
    out = command("info")[1]
    assert all(len(line.split(maxsplit=1)) == 2 for line in out.splitlines())
    assert "trees" not in out and "trees" in json.loads(command("info", "--json")[1])


def program(*words, stdout, **environment):
    """A command in its own process, which buffers its output."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [sys.executable, "-P", "-m", "gpureduce", *words],
        env={**env, **environment}, stdout=stdout, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_output_that_cannot_be_written_is_an_error_in_one_line():
    with open("/dev/full", "w") as full:
        done = program("strategies", stdout=full)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("gpureduce: ") and "No space left" in done.stderr


def test_a_closed_pipe_ends_a_command_quietly():
    reading, writing = os.pipe()
    os.close(reading)
    done = program("strategies", stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_locale_without_arrows(tmp_path):
    picture = tmp_path / "a.svg"
    done = program(
        "explain", "sum_idx", "sum_seq", "--svg", str(picture),
        stdout=subprocess.PIPE, PYTHONIOENCODING="ascii", LC_ALL="C", PYTHONUTF8="0",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "") and done.stdout
    assert picture.read_text(encoding="utf-8").startswith("<svg")


def test_errors_do_not_go_to_standard_output():
    """Where standard error is closed, print() would take standard output."""
    code = """
import sys
from gpureduce.cli.main import main
sys.stderr = None
print(main(["sum", "x"]))
"""
    assert run_python(code) == "2\n"


def test_build_info_is_the_callers_own():
    gpureduce.build_info()["trees"].clear()
    assert gpureduce.build_info()["trees"]


USAGES = {
    "": "gpureduce COMMAND [options]",
    "sum": "gpureduce sum FILE.npy [options]",
    "segments": "gpureduce segments VALUES.npy IDS.npy [options]",
    "explain": "gpureduce explain STRATEGY [OTHER] [options]",
    "bench": "gpureduce bench [options]",
    "races": "gpureduce races STRATEGY [options]",
    "replay": "gpureduce replay STRATEGY [options]",
    "tune": "gpureduce tune [options]",
    "verify-counters": "gpureduce verify-counters [options]",
}
REFUSED = {
    "smu a.npy": "there is no command 'smu': did you mean sum?",
    "sums": "there is no command 'sums': did you mean sum?",
    "xyzzy": "there is no command 'xyzzy'; there are sum, segments, stats, tour, ",
    "--jsn": "gpureduce has no option '--jsn'",
    "sum": "FILE.npy is missing; write it before options that take several words",
    "segments": "VALUES.npy, IDS.npy are missing",
    "segments a.npy": "IDS.npy is missing",
    "sum a.npy b.npy": "unexpected argument 'b.npy'",
    "sum a.npy --axis 0 --axis 1": "--axis is given twice",
    "bench --sizes 10 --sizes 20": "--sizes is given twice",
    "sum a.npy --blok 3": "sum has no option '--blok': did you mean --block?",
    "sum a.npy --blok=3": "sum has no option '--blok': did you mean --block?",
    "sum a.npy --block x": "--block must be a whole number, not 'x'",
    "sum a.npy --finish singel": "--finish must be one of host, relaunch, single, not 'singel': "
    "did you mean single?",
    "sum a.npy --axis rows": "an axis is a whole number, or several as in 0,2, not 'rows'",
    "explain sequental": "there is no strategy 'sequental': did you mean sequential?\n",
    "races warp_volatil": "there is no strategy 'warp_volatil': did you mean warp_volatile?\n",
    "replay sequental": "there is no strategy 'sequental': did you mean sequential?\n",
    "replay sequential --open": "--open shows the page that --output writes",
    "explain cascade --dtype float23": "there is no dtype 'float23': did you mean float32",
    "bench --strategies fats": "there is no strategy 'fats': did you mean fast?\n",
    "bench --lecture trapzoid": "there is no lecture 'trapzoid': did you mean trapezoid?\n",
    "bench --peers nunpy": "there is no peer 'nunpy': did you mean numpy?\n",
    "bench --measure kernal": "--measure must be one of kernel, apart, call, host, explain, count, "
    "not 'kernal': did you mean kernel?",
    "bench --parts rungs": "--parts is for --axis",
    "bench --cub cub.so": "--cub is for --segments",
    "tune --sizes 1.5": "a size is a whole number below 2^63",
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_reason_and_the_usage_of_the_verb(command, words):
    status, out, err = command(*words.split())
    verb = words.split()[0] if words.split()[0] in USAGES else ""
    reason, usage = err.splitlines()
    assert status == 2 and not out and reason.startswith("gpureduce: ")
    assert REFUSED[words] in err
    assert usage == f"usage: {USAGES[verb]}"


def test_a_file_has_no_usage_and_is_named_in_words(command, tmp_path):
    """What is wrong is the file, and not how the command is used."""
    missing, folder, text = (tmp_path / name for name in ("no.npy", "f.npy", "t.npy"))
    folder.mkdir()
    text.write_text("text")
    for path, said in [
        (missing, f"there is no file {missing}"),
        ("\x1b[2J\u202e.npy", r"there is no file \x1b[2J\u202e.npy"),
        (folder, f"{folder}: is a directory"),
        (text, f"{text} is not a .npy file: its first bytes are not those of one"),
    ]:
        assert command("sum", path) == (2, "", f"gpureduce: {said}\n")
    (tmp_path / "t.cu").write_bytes(b"\xff")
    said = f"gpureduce: {tmp_path / 't.cu'}: it is not UTF-8 text (byte 0): save it as UTF-8\n"
    assert command("check", tmp_path / "t.cu") == (2, "", said)
    (tmp_path / "t.cu").write_text("__global__ int f(int *a) {}")
    said = "gpureduce: line 1: f returns int; a kernel returns void\n"
    assert command("check", tmp_path / "t.cu") == (2, "", said)


def test_without_words_the_help_is_shown(command):
    status, out, err = command()
    assert status == 0 and not err
    assert out.startswith("usage: gpureduce COMMAND [options]\n") and "gpureduce tour" in out
    assert all(f"\n    {verb}" in out for verb in USAGES if verb)


@pytest.mark.parametrize("verb", [verb for verb in USAGES if verb])
def test_help_begins_with_the_usage(command, verb):
    status, out, _ = command(verb, "--help")
    assert status == 0 and out.startswith(f"usage: {USAGES[verb]}\n") and "--json" in out


@pytest.mark.parametrize(
    ("words", "one"),
    [
        ("explain warp_shfl --n 1 --block 32", ["1 wavefront", "1 block of"]),
        ("explain sequential --n 2 --block 32 --grid 1", ["1 block of 32 threads"]),
        ("explain atomic_block --n 1 --block 32", ["1 atomic"]),
        ("races sequential --n 64 --schedules forward", ["in 1 order of threads"]),
        ("races missing_barrier --schedules forward", ["1 pair of lines"]),
    ],
)
def test_one_is_singular(command, words, one):
    status, out, _ = command(*words.split())
    assert status == 0 and all(text in out for text in one), out
    wrong = re.findall(r"(?<![\d,.])1 (?:more )?[a-z]+s\b(?! lanes)", out)
    assert [text for text in wrong if not text.endswith("ss")] == []
