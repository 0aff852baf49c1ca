"""Maps each instruction of a kernel's machine code to its line in the source.

nvcc compiles the kernel again, from the same text and with the same flags as the extension, plus a
line table. The line table does not change the instructions. (In the extension it would be nearly as
large as the machine code.) nvdisasm prints the instructions with their lines. They are compared
with ncu's listing, instruction by instruction. If they differ, for example because another compiler
built the extension, `Missing` is raised.
"""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

from gpureduce.core import devices, json_files
from gpureduce.core.sources import Place, files, text_of
from gpureduce.hardware import toolkit
from gpureduce.hardware.counters import Instruction

_SECONDS = 120  # time limit for one run of a tool


class Missing(OSError):
    """The lines of a kernel are not known; the message says why."""


@dataclass(frozen=True)
class Coded:
    """An instruction as nvdisasm prints it.

    `frames` holds its file and line, and if that was inlined, the file and line of each caller,
    innermost first.
    """

    text: str
    frames: tuple[tuple[str, int], ...]

    @property
    def place(self) -> Place | None:
        """The innermost line in a kernel's file, by the same rule as the lines of `explain`."""
        for file, line in self.frames:
            known = file if file.startswith("csrc/kernels/") else Path(file).name
            if known in files():
                return Place(Path(file).name, line, text_of(known, line))
        return None


Functions = dict[str, list[Coded]]


# --- from texts to lines ------------------------------------------------------------------------

_FUNCTION = re.compile(r"\.text\.(\S+):$")
_FRAME = re.compile(r'\s*//## File "([^"]*)", line (\d+)(?: inlined at .*)?$')
_CODED = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(\S.*?)\s*;")


def _shortened(file: str) -> str:
    """The path of a kernel's file from csrc/ on, wherever it was compiled."""
    return re.sub(r".*/(?=csrc/)", "", file)


def functions_of(disassembly: str) -> Functions:
    """Parses the output of ``nvdisasm -c -gi``: the instructions of each function."""
    found: Functions = {}
    code: list[Coded] = []
    frames: tuple[tuple[str, int], ...] = ()
    marks = False  # whether the previous line was a frame: the next frame is then its caller
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
    """The parts that must agree in two listings of an instruction: guard, opcode and registers.

    nvdisasm and ncu write labels, constants and zeros in different ways.
    """
    text = re.sub(r"`\(.*\)|\(\*.*", "", text)
    words = text.split()
    guard = words.pop(0) if words and words[0].startswith("@") else ""
    return (guard, *words[:1], *re.findall(r"\bR\d+", " ".join(words[1:])))


def _without_padding(code: Sequence[tuple[str, ...]]) -> Sequence[tuple[str, ...]]:
    """Strips the end of a function: a jump to itself, then NOPs up to the alignment boundary."""
    end = len(code)
    while end and code[end - 1][1:2] in (("NOP",), ("BRA",)):
        end -= 1
    return code[:end]


def with_places(code: Sequence[Instruction], name: str, functions: Functions) -> list[Instruction]:
    """Adds the place in the source to each instruction of ncu's listing of a kernel.

    One of the functions with the kernel's name must agree with the listing in each instruction;
    otherwise raises `Missing`.
    """
    listed = _without_padding([_essence(one.text) for one in code])
    candidates = [coded for f, coded in functions.items() if f == name or f"{len(name)}{name}" in f]
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
        f"ncu's listing matches none of the {len(candidates)} functions that nvcc compiles "
        f"here{nearest}"
    )


# --- from a kernel to texts ---------------------------------------------------------------------


def find_tool(name: str) -> str:
    """The path of a tool of the CUDA toolkit. Raises Missing if there is none."""
    if found := toolkit.find(name):
        return str(found)
    raise Missing(
        f"there is no {name} on PATH: it comes with the CUDA toolkit; the environment's "
        f"{name.upper()} may say where it is"
    )


def first_card() -> devices.Device:
    """The first GPU. Raises Missing if there is none."""
    cards = [device for device in devices.devices() if device.backend == "cuda"]
    if not cards:
        raise Missing(devices.build_info()["why"])
    return cards[0]


def architecture() -> int:
    """The architecture, of those in the extension, that the GPU runs."""
    major, minor = first_card().capability
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


def disassembly(strategy: str, arch: int) -> str:
    """The output of nvdisasm, with lines, for a strategy's kernels on an architecture."""
    nvcc, recipe = find_tool("nvcc"), json_files.packaged("_nvcc.json")
    find_tool("nvdisasm")  # before nvcc takes its time
    texts = {**recipe["sources"], **{file: "\n".join(text) for file, text in files().items()}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in texts.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text + "\n")
        flags = [*recipe["flags"], *recipe["defines"][strategy], "-lineinfo", f"-arch=sm_{arch}"]
        _run([nvcc, *flags, "-cubin", "-o", "kernels.cubin", recipe["file"]], folder)
        return disassembled(folder / "kernels.cubin")


def disassembled(cubin: Path) -> str:
    """The output of nvdisasm, with lines, for a cubin that has a line table."""
    return _run([find_tool("nvdisasm"), "-c", "-gi", str(cubin)], cubin.parent)


@functools.cache
def _functions_or_why(strategy: str) -> Functions | Missing:
    try:
        return functions_of(disassembly(strategy, architecture()))
    except Missing as error:
        return error


def functions(strategy: str) -> Functions:
    """The instructions of a strategy's kernels, for the GPU's architecture."""
    found = _functions_or_why(strategy)
    if isinstance(found, Missing):
        raise found
    return found
