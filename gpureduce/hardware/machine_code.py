"""Which line of the source each instruction of a kernel's machine code comes from.

nvcc compiles the kernel again, from the text and with the flags that gpureduce was built from, and
this time with a table of lines, which changes no instruction. (In the extension that table would
take nearly as much room as the machine code.) nvdisasm reads it. What ncu lists is then held
against that, instruction by instruction: if another compiler made the extension, it is told, not
guessed.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from gpureduce.core import devices
from gpureduce.core.sources import Place, files, text_of
from gpureduce.hardware.counters import Instruction

_SECONDS = 120  # for one run of a tool


class Missing(OSError):
    """Why the lines of a kernel are not known."""


@dataclass(frozen=True)
class Coded:
    """An instruction as nvdisasm prints it.

    `frames` are file and line that it comes from, and, where that was inlined, from where, and so
    on outwards.
    """

    text: str
    frames: tuple[tuple[str, int], ...]

    @property
    def place(self) -> Place | None:
        """The innermost line of a kernel's file, as `explain` attributes what it counts."""
        for file, line in self.frames:
            if file.startswith("csrc/kernels/"):
                return Place(Path(file).name, line, text_of(file, line))
        return None


Functions = dict[str, list[Coded]]


# --- from texts to lines ------------------------------------------------------------------------

_FUNCTION = re.compile(r"\.text\.(\S+):$")
_FRAME = re.compile(r'\s*//## File "([^"]*)", line (\d+)(?: inlined at .*)?$')
_CODED = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(\S.*?)\s*;")


def _shortened(file: str) -> str:
    """A path as the kernels' texts are known by, wherever they were compiled."""
    return re.sub(r".*/(?=csrc/)", "", file)


def functions_of(disassembly: str) -> Functions:
    """What ``nvdisasm -c -gi`` prints of a cubin: the instructions of its functions."""
    found: Functions = {}
    code: list[Coded] = []
    frames: tuple[tuple[str, int], ...] = ()
    marks = False  # whether the line before was part of a mark, which this one then goes on with
    for line in disassembly.splitlines():
        function, frame, coded = _FUNCTION.match(line), _FRAME.match(line), _CODED.match(line)
        if function:
            code, frames = found.setdefault(function[1], []), ()
        elif frame:
            one = (_shortened(frame[1]), int(frame[2]))
            frames = (*frames, one) if marks else (one,)
        elif coded:
            code.append(Coded(coded[1], frames))
        marks = bool(frame)
    return found


def _essence(text: str) -> tuple[str, ...]:
    """What two listings of an instruction must share: its guard, its opcode, its registers.

    They name places in the code, constants and zeros in different ways.
    """
    text = re.sub(r"`\(.*\)|\(\*.*", "", text)
    words = text.split()
    guard = words.pop(0) if words and words[0].startswith("@") else ""
    return (guard, *words[:1], *re.findall(r"\bR\d+", " ".join(words[1:])))


def _without_padding(code: Sequence[tuple[str, ...]]) -> Sequence[tuple[str, ...]]:
    """Behind a function's end stand a jump to itself and NOPs up to the next boundary."""
    end = len(code)
    while end and code[end - 1][1:2] in (("NOP",), ("BRA",)):
        end -= 1
    return code[:end]


def with_places(code: Sequence[Instruction], name: str, functions: Functions) -> list[Instruction]:
    """The instructions of a kernel as ncu lists them, each with its place in the source.

    Of the functions that have the kernel's name, one must be the same instruction by instruction.
    """
    listed = _without_padding([_essence(one.text) for one in code])
    candidates = [coded for f, coded in functions.items() if f"{len(name)}{name}I" in f]
    nearest, least = "", -1
    for coded in candidates:
        compiled = _without_padding([_essence(one.text) for one in coded])
        if compiled == listed:
            return [
                replace(one, place=coded[i].place if i < len(coded) else None)
                for i, one in enumerate(code)
            ]
        pairs = zip(compiled, listed, strict=False)
        agreed = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        if agreed > least:
            theirs, ours = (
                repr(texts[agreed].text.strip()) if agreed < len(texts) else "missing"
                for texts in (code, coded)
            )
            nearest, least = f": instruction {agreed} is {theirs}, not {ours}", agreed
    raise Missing(
        f"what ncu lists is none of the {len(candidates)} functions that nvcc makes of it "
        f"here{nearest}"
    )


# --- from a kernel to texts ---------------------------------------------------------------------


def find_tool(name: str) -> str:
    """Where a tool of the CUDA toolkit is."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    candidates = [os.environ.get(name.upper()), name]
    candidates += [f"{home}/bin/{name}" for home in homes if home]
    for entry in sys.path:
        candidates += [str(path) for path in Path(entry or ".").glob(f"nvidia/cu*/bin/{name}")]
    for candidate in candidates:
        found = shutil.which(candidate) if candidate else None
        if found:
            return found
    raise Missing(
        f"there is no {name} on PATH: it comes with the CUDA toolkit; the environment's "
        f"{name.upper()} may say where it is"
    )


def architecture() -> int:
    """Which of the architectures that the extension was built for the card runs."""
    cards = [device for device in devices.devices() if device.backend == "cuda"]
    if not cards:
        raise Missing(devices.build_info()["why"])
    major, minor = cards[0].capability
    archs: list[int] = devices.build()["cuda_archs"]
    fit = [arch for arch in archs if arch // 10 == major and arch % 10 <= minor]
    if not fit:
        raise Missing(f"the driver made the machine code, for compute capability {major}.{minor}")
    return max(fit)


def _run(command: Sequence[str], folder: Path) -> str:
    name = Path(command[0]).name
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{name} failed: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().replace(str(folder), "")
        raise Missing(f"{name} failed with status {done.returncode}: {said[-300:]}")
    return done.stdout


@functools.cache
def _recipe() -> dict[str, Any]:
    """What setup.py wrote down about how it compiles a kernel."""
    recipe: dict[str, Any] = json.loads((Path(__file__).parents[1] / "_nvcc.json").read_text())
    return recipe


def disassembly(strategy: str, arch: int) -> str:
    """A strategy's kernels for an architecture, as nvdisasm prints them with their lines."""
    nvcc, nvdisasm = find_tool("nvcc"), find_tool("nvdisasm")
    recipe = _recipe()
    texts = {**recipe["sources"], **{file: "\n".join(text) for file, text in files().items()}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in texts.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text + "\n")
        flags = [*recipe["flags"], *recipe["defines"][strategy], "-lineinfo", f"-arch=sm_{arch}"]
        _run([nvcc, *flags, "-cubin", "-o", "kernels.cubin", recipe["file"]], folder)
        return _run([nvdisasm, "-c", "-gi", "kernels.cubin"], folder)


@functools.cache
def _functions_or_why(strategy: str) -> Functions | Missing:
    try:
        return functions_of(disassembly(strategy, architecture()))
    except Missing as error:
        return error


def functions(strategy: str) -> Functions:
    """A strategy's kernels as they run on the card."""
    found = _functions_or_why(strategy)
    if isinstance(found, Missing):
        raise found
    return found
