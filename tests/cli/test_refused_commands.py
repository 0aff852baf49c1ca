"""What commands say to wrong words: one line of reason, then the verb's usage."""

from __future__ import annotations

import pytest

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
    import re

    status, out, _ = command(*words.split())
    assert status == 0 and all(text in out for text in one), out
    wrong = re.findall(r"(?<![\d,.])1 (?:more )?[a-z]+s\b(?! lanes)", out)
    assert [text for text in wrong if not text.endswith("ss")] == []
