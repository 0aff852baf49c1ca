"""Files that commands write: inputs and other files stay, and the extension decides the format."""

from __future__ import annotations

import os

import numpy as np
import pytest

from gpureduce.core import output_files, text_files
from user_kernels import TREE

BENCH = ["bench", "--strategies", "cpu", "--sizes", "100", "--repeats", "1"]
# The words before the option, the option, its extensions, and one that it refuses.
OUTPUTS = {
    "sum": (["sum", "a.npy"], "--output", [".npy"], ".txt"),
    "segments": (["segments", "a.npy", "ids.npy"], "--output", [".npy"], ".csv"),
    "bench": (BENCH, "--output", [".json", ".csv"], ".txt"),
    "tune": (["tune", "--device", "emulator", "--sizes", "1024", "--repeats", "1"], "--output",
             [".json"], ".toml"),
    "lecture": (["bench", "--lecture", "block_grid", "--device", "emulator", "--repeats", "1"],
                "--record", [".json"], ".csv"),
    "explain": (["explain", "cascade", "--n", "100"], "--svg", [".svg"], ".png"),
    "races": (["races", "missing_barrier", "--schedules", "forward"], "--svg", [".svg"], ".pdf"),
    "replay": (["replay", "sequential", "--n", "64"], "--output", [".html"], ".txt"),
}  # fmt: skip
EACH = pytest.mark.parametrize(
    ("verb", "suffix"), [(verb, suffix) for verb, row in OUTPUTS.items() for suffix in row[2]]
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with arrays, which is the current one."""
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.arange(6.0))
    np.save("ids.npy", np.array([0, 0, 1, 1, 2, 2]))
    return tmp_path


@EACH
def test_an_earlier_output_is_replaced_and_another_file_is_not(command, here, verb, suffix):
    words, option, _, _ = OUTPUTS[verb]
    path = here / f"out{suffix}"
    path.write_text("a diary")
    status, out, err = command(*words, option, path)
    assert status == 2 and not out and path.read_text() == "a diary"
    assert err.startswith(f"gpureduce: {path} exists and is not known as an earlier output")
    assert "--force" in err
    assert command(*words, option, path, "--force")[0] == 0
    assert path.read_bytes()[:7] != b"a diary"
    again = command(*words, option, path)[0]
    assert again == (2 if suffix == ".npy" else 0)  # a .npy file may be anybody's
    path.write_bytes(b"")
    assert command(*words, option, path)[0] == 0  # it had nothing
    assert sorted(os.listdir()) == ["a.npy", "ids.npy", path.name]


@pytest.mark.parametrize("verb", OUTPUTS)
def test_the_extension_decides_the_format_or_is_refused(command, here, verb):
    words, option, suffixes, other = OUTPUTS[verb]
    for name in (f"out{other}", "out" if verb != "lecture" else f"out{other}"):
        status, out, err = command(*words, option, name)
        assert status == 2 and not out and not os.path.exists(name)
        assert f"{option} must end in {' or '.join(suffixes)}" in err


@pytest.mark.parametrize("verb", ["sum", "segments", "lecture", "explain", "bench"])
def test_a_record_of_another_kind_is_another_file(command, here, verb):
    """A file of another kind is not overwritten, even if the extension is right."""
    words, option, suffixes, _ = OUTPUTS[verb]
    other = {".npy": "a.npy", ".json": "other.json", ".svg": "other.svg"}[suffixes[0]]
    if suffixes[0] == ".json":
        assert command(*OUTPUTS["tune"][0], "--output", other)[0] == 0
    if suffixes[0] == ".svg":
        assert command(*OUTPUTS["races"][0], "--svg", other)[0] == 0
    before = (here / other).read_bytes()
    assert command(*words, option, other)[0] == 2
    assert (here / other).read_bytes() == before


def named_again(folder, path, way):
    """Another name of a file."""
    name = folder / f"again{path.suffix}"
    if way == "path":
        return folder / "." / path.name
    getattr(os, way)(path, name)
    return name


@pytest.mark.parametrize("way", ["path", "link", "symlink"])
@pytest.mark.parametrize("force", [[], ["--force"]])
def test_no_command_overwrites_its_input(command, here, way, force):
    array, ids, kernel, record = (here / n for n in ("a.npy", "ids.npy", "k.cu", "r.json"))
    kernel.write_text(TREE)
    record.write_text('{"schema": 1, "kind": "counters"}')
    picture = here / "k.svg"
    for words, option, given in [
        (["sum", array], "--output", array),
        (["segments", array, ids], "--output", ids),
        (["segments", array, ids], "--output", array),
        (["verify-counters", "--again", record], "--record", record),
    ]:
        before, again = given.read_bytes(), named_again(here, given, way)
        status, out, err = command(*words, option, again, *force)
        assert status == 2 and not out and given.read_bytes() == before
        assert f"{option} would overwrite the input" in err
        if way != "path":
            again.unlink()
    for words, option in [
        (["explain", kernel], "--svg"), (["races", kernel], "--svg"), (["check", kernel], "--html"),
        (["bench", "--strategies", kernel, "--sizes", 100], "--output"),
        (["replay", kernel], "--output"), (["check", kernel], "--replay"),
        (["races", kernel], "--replay"),
    ]:  # fmt: skip
        suffix = {"--svg": "svg", "--output": "json"}.get(option, "html")
        picture = here / f"k.{'html' if words[0] == 'replay' else suffix}"
        picture.symlink_to(kernel)
        status, _, err = command(*words, option, picture, *force)
        assert status == 2 and kernel.read_text() == TREE
        assert f"{option} would overwrite the input" in err
        picture.unlink()


def test_a_failure_leaves_the_old_file(command, here, monkeypatch):
    path = here / "sums.npy"
    path.write_text("old")
    path.chmod(0o640)

    def fails(file, *_, **__):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(np, "save", fails)
        status, _, err = command("sum", "a.npy", "--output", path, "--force")
    assert status == 2 and err == f"gpureduce: {path}: no space left on device\n"
    assert path.read_text() == "old" and len(os.listdir()) == 3
    assert command("sum", "a.npy", "--output", path, "--force")[0] == 0
    assert path.stat().st_mode & 0o777 == 0o640 and np.load(path) == 15


def test_folders_pipes_and_devices(command, here):
    (here / "folder.npy").mkdir()
    status, _, err = command("sum", "a.npy", "--output", "folder.npy")
    assert status == 2 and "folder.npy is a folder: name a file for --output" in err
    status, _, err = command("sum", "a.npy", "--output", "no/sums.npy")
    assert status == 2 and err == "gpureduce: there is no folder no to write sums.npy to\n"
    assert command("explain", "cascade", "--svg", "/dev/null")[0] == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_to(command, here):
    here.chmod(0o500)
    status, _, err = command("sum", "a.npy", "--output", "sums.npy")
    assert status == 2 and err == f"gpureduce: {here}/sums.npy: permission denied\n"


def test_a_folder_is_looked_at_before_anything_is_measured(command, here, monkeypatch):
    """A minute's figures were lost."""
    monkeypatch.setattr(os, "access", lambda path, mode: path != here)
    status, out, err = command("bench", "--strategies", "cpu", "--output", "b.json")
    assert (status, out, err) == (2, "", f"gpureduce: {here}/b.json: permission denied\n")


def test_a_page_and_a_verdict_are_known_by_their_last_line(tmp_path):
    path = tmp_path / "page.html"
    output_files.write(path, "<html></html>\n", "bench")
    assert text_files.read(path).endswith("\n<!-- gpureduce bench -->\n")
    named = (str(path), "--output")
    assert output_files.checked(*named, "bench", (".html",)) == path
    with pytest.raises(FileExistsError):
        output_files.checked(*named, "check", (".html",))
