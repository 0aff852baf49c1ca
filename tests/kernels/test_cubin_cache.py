"""The cache of kernels for a card, by a compiler that is none: any machine has this one."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest

import gpureduce
from gpureduce.kernels import compiler_process, cubins, nvrtc
from user_kernels import INDEX_BUG


def elf(function):
    """A file with a section for a function, as a cubin has it: names, code, and the sections."""
    names, code = b"\0.text." + function + b"\0", b"code" * 20
    sections = [(0, 1, 0, 0, 64 + len(names), len(code))] * 2
    sections = [(1, *sections[0][1:]), (0, 3, 0, 0, 64, len(names))]
    at = 64 + len(names) + len(code)
    head = b"\x7fELF" + bytes(36) + struct.pack("<Q10xHHH", at, 40, 2, 1)
    rows = b"".join(struct.pack("<IIQQQQ", *row) for row in sections)
    return head + names + code + rows


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    calls = []

    def compiled(commands, folder, _):
        calls.append(commands)
        (folder / "kernel.cubin").write_bytes(elf(b"_Z7shiftedPKiPim"))
        return [(0, "")]

    made = SimpleNamespace(version="none", path=tmp_path / "none", archs=(90,))
    monkeypatch.setattr(compiler_process, "run", compiled)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(nvrtc, "find", lambda: made)
    return calls


def test_a_spoiled_cubin_is_made_again(compiler):
    kernel = gpureduce.kernel(INDEX_BUG)
    make = lambda: cubins.cubin(kernel.source, kernel.signature, ("u32", "u32"), 90)  # noqa: E731
    first = make()
    assert first.symbols == ((0, "_Z7shiftedPKiPim"),)
    assert make() == first and len(compiler) == 1
    whole = first.path.read_bytes()
    half = whole[: len(whole) // 2]
    for i, spoiled in enumerate((b"", half, half + bytes(len(half)), whole[:-1], b"\xff" * 200)):
        first.path.write_bytes(spoiled)
        assert make() == first and first.path.read_bytes() == whole
        assert len(compiler) == i + 2
