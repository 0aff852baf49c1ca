"""Compiles a kernel for a card, by NVRTC or else by nvcc, into the user's cache.

As for the emulator, a file of ours includes the user's own file. Both compilers add a line table,
which changes no instruction.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import re
import struct
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from gpureduce.core import text_files
from gpureduce.hardware import toolkit
from gpureduce.kernels import compiler_process, compiling, nvrtc, programs
from gpureduce.kernels.compiling import Source
from gpureduce.kernels.signature import HEAD, Signature
from gpureduce.kernels.source_text import KernelError, without_comments

_OURS = "gpureduce_kernel.cu"
_TEXT = '#include <device.h>\n#include <shared/cuda_types.h>\n#include "{file}"\n'
_TIME_S = 120
# Half of NVRTC's time goes into these two headers. Most kernels need only the names of the types.
_HALVES = {"cuda_fp16.h": "struct __half;\n", "cuda_bf16.h": "struct __nv_bfloat16;\n"}
_NEEDS_TOOLKIT = re.compile(r"half|bfloat|cuda_fp16|cuda_bf16|cooperative_groups|#\s*include\s*<cu")


@dataclass(frozen=True)
class Cubin:
    """The machine code of a kernel for one pair of types: a file, and its kernels by block size."""

    path: Path
    symbols: tuple[tuple[int, str], ...]


def cubin(
    source: Source, signature: Signature, pair: tuple[str, str], arch: int, by: str | None = None
) -> Cubin:
    """The kernel compiled for an architecture, such as 90.

    `by` is "nvrtc" or "nvcc", by default the first of them that is there.
    """
    compiler = nvrtc.find() if by != "nvcc" else None
    nvcc = toolkit.find("nvcc") if by != "nvrtc" and compiler is None else None
    if compiler is None and nvcc is None:
        raise RuntimeError(_missing(by))
    version = compiler.version if compiler else _version(str(nvcc))
    made_by = str(compiler.path if compiler else nvcc)
    headers = compiling.key_of(compiling.recipe()["files"].values())
    caller = compiling.in_our_order(signature, pair, is_device=True)
    instances = compiling.instances(signature, pair)
    if caller:
        source = replace(source, text=_as_device_function(source.text, signature.name))
        instances = [(block, f"gr_in_order_{i}") for i, (block, _) in enumerate(instances)]
    text = f"{_TEXT.format(file=source.file)}{caller}"
    parts = [text, source.text, source.file, *source.included(), *(name for _, name in instances)]
    key = compiling.key_of([*parts, *pair, str(arch), headers, version, made_by])
    path = compiling.cache_folder() / f"{key}.cubin"
    blocks = [block for block, _ in instances]
    if path.exists():
        os.utime(path)
        # A spoiled one is made again.
        with contextlib.suppress(struct.error, IndexError, OverflowError, ValueError):
            return Cubin(path, _symbols(path.read_bytes(), signature, blocks))
    names = [name for _, name in instances]
    if compiler:
        code = _by_nvrtc(compiler, source, text, names, pair, arch)
    else:
        code = _by_nvcc(str(nvcc), source, text, names, arch)
    with text_files.replacing(path) as file:
        file.write(code)
    compiling.prune()
    return Cubin(path, _symbols(code, signature, blocks))


def _as_device_function(text: str, name: str) -> str:
    """The text in which this kernel is a function that another kernel calls."""
    for head in reversed([*HEAD.finditer(without_comments(text))]):  # prototypes, too
        if head[1] == name:
            declared = text[head.start() : head.end()].replace("__global__", "__device__", 1)
            declared = re.sub(r"__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)", " ", declared)
            text = text[: head.start()] + declared + text[head.end() :]
    return text


def _missing(by: str | None) -> str:
    wanted = f"{by}, which is not there" if by else "NVRTC or nvcc, and neither is there"
    return (
        f"a kernel of yours is compiled for a card by {wanted}: pip install 'gpureduce[nvrtc]', or "
        "install the CUDA toolkit; device='emulator' needs none of them"
    )


@functools.cache
def _version(nvcc: str) -> str:
    return compiler_process.version([nvcc])


def _refused(said: str, file: str) -> KernelError:
    """The compiler's messages in the form of the host compiler's: file:line: error: ..."""
    said = re.sub(r"(?m)^(\S[^(\n]*)\((\d+)\): ", r"\1:\2: ", said)
    said = said.replace(": catastrophic error: ", ": fatal error: ")
    kept = [line for line in said.splitlines() if not re.search(rf"\bline \d+ of {_OURS}", line)]
    return KernelError(compiling.told("\n".join(kept), file))


def _headers() -> dict[str, str]:
    """Our headers for NVRTC, by the names that an #include has."""
    # NVRTC has the standard functions that device code may call built in, so that the standard
    # headers may be empty.
    headers = dict.fromkeys(programs.STANDARD, "")
    for file, text in compiling.recipe()["files"].items():
        folder = next((f for f in ("cuda/nvrtc/", "cuda/", "kernels/") if file.startswith(f)), "")
        headers[file.removeprefix(folder)] = text
    headers["cstdint"] = headers["stdint.h"]
    return headers


def _by_nvrtc(
    compiler: nvrtc.Nvrtc, source: Source, text: str, names: list[str], pair: tuple[str, str],
    arch: int,
) -> bytes:  # fmt: skip
    if arch not in compiler.archs:
        raise RuntimeError(
            f"{compiler.version} ({compiler.path}) compiles for the architectures "
            f"{', '.join(map(str, compiler.archs))}, not for {arch}: install a newer one"
        )
    headers = _headers()
    words = "\n".join([source.text, *source.included()])
    folders = toolkit.headers(compiler.path)
    if not {"f16", "bf16"} & set(pair) and not _NEEDS_TOOLKIT.search(words):
        headers |= _HALVES
    elif not folders:
        raise RuntimeError(
            "half, bfloat16 and cooperative groups need the headers of the CUDA toolkit: pip "
            "install 'gpureduce[nvrtc]', or install the toolkit"
        )
    headers[source.file] = source.text
    options = [f"--gpu-architecture=sm_{arch}", "--std=c++17", "--generate-line-info"]
    options += [f"--include-path={path}" for path in folders]
    options += [f"--include-path={source.folder}"] if source.folder else []
    with tempfile.TemporaryDirectory(dir=compiling.cache_folder()) as folder:
        call = (compiler.path, text, _OURS, headers, names, options)
        (Path(folder) / "call").write_bytes(pickle.dumps(call))
        command = [sys.executable, "-P", "-S", nvrtc.__file__, "call", "kernel.cubin"]
        return _made(command, Path(folder), source.file)


def _by_nvcc(nvcc: str, source: Source, text: str, names: list[str], arch: int) -> bytes:
    recipe, headers = compiling.recipe(), compiling.header_folder()
    includes = [f"-I{headers / folder}" for folder in recipe["cuda_includes"]]
    includes += [f"-I{source.folder}"] if source.folder else []
    # A use on the host's side makes nvcc compile an instance of a template.
    uses = "".join(f"    (const void *)({name}),\n" for name in names)
    text = f"{text}const void *gr_used[] = {{\n{uses}}};\n"
    with tempfile.TemporaryDirectory(dir=compiling.cache_folder()) as folder:
        (Path(folder) / source.file).write_text(source.text, "utf-8")
        (Path(folder) / _OURS).write_text(text, "utf-8")
        command = [nvcc, *recipe["nvcc"], "-cubin", f"-arch=sm_{arch}", "-lineinfo", *includes]
        return _made([*command, "-o", "kernel.cubin", _OURS], Path(folder), source.file)


def _made(command: list[str], folder: Path, file: str) -> bytes:
    """The kernel.cubin that a compiler writes into a folder."""
    ((status, said),) = compiler_process.run([command], folder, _TIME_S)
    if status:
        raise _refused(said, file)
    return (folder / "kernel.cubin").read_bytes()


# --- the kernels in a cubin ----------------------------------------------------------------------


def functions(code: bytes) -> dict[str, bytes]:
    """The functions in a cubin, which is an ELF file with a section for each: names, code."""
    offset, size, count, names = struct.unpack_from("<Q10xHHH", code, 40)
    sections = [struct.unpack_from("<IIQQQQ", code, offset + size * i) for i in range(count)]
    start = sections[names][4]
    found = {}
    for name, _, _, _, at, length in sections:
        text = code[start + name : code.index(b"\0", start + name)].decode()
        if text.startswith(".text."):
            found[text.removeprefix(".text.")] = code[at : at + length]
    return found


def _symbols(code: bytes, signature: Signature, blocks: list[int]) -> tuple[tuple[int, str], ...]:
    """The kernel's symbols by block size. `extern "C"` leaves the name as it is."""
    if not signature.is_usual:
        return _symbols_in_our_order(functions(code), blocks)
    name = signature.name
    mangled = re.compile(rf"_Z(?:N.*?|.*?\D)?{len(name)}{name}(?:I.*?L[ijlm](?P<block>\d+)E)?")
    found: dict[int, str] = {}
    for symbol in functions(code):
        match = mangled.match(symbol)
        if symbol == name or match:
            block = int(match["block"] or 0) if match and signature.block else 0
            found.setdefault(block, symbol)
    missing = [block for block in blocks if block not in found]
    if missing:
        raise KernelError(f"the compiler made no kernel {name}: {', '.join(functions(code))}")
    return tuple((block, found[block]) for block in blocks)


def _symbols_in_our_order(names: Iterable[str], blocks: list[int]) -> tuple[tuple[int, str], ...]:
    """The symbols of the kernels that call instances, whose parameters have another order."""
    found = {}
    for symbol in names:
        if match := re.match(r"_Z\d+gr_in_order_(\d+)P", symbol):
            found[blocks[int(match[1])]] = symbol
    return tuple((block, found[block]) for block in blocks)
