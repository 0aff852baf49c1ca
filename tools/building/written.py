"""What the build writes beside the modules: facts, sources and records, as JSON."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from building.kernels import CSRC, INCLUDE, KERNEL_TABLE, ROOT, read_registry
from building.modules import (
    CLANG_HOOKS,
    CUDA_INCLUDES,
    NVCC_FLAGS,
    SANITIZE,
    TRACED,
    ask_compiler,
)


def kernel_sources() -> dict[str, list[str]]:
    """The lines of every kernel file, to show the source line of a count."""
    folder = ROOT / CSRC / "kernels"
    files = sorted(p for p in folder.rglob("*") if p.suffix in (".cu", ".h"))
    return {p.relative_to(ROOT).as_posix(): p.read_text().splitlines() for p in files}


def nvcc_recipe() -> dict[str, object]:
    """Flags, defines and included files of a kernel, to compile it again on another machine."""
    around = [ROOT / KERNEL_TABLE]
    for folder in (".", "cuda", "engine", "shared", "exact"):
        around += sorted(p for p in (ROOT / CSRC / folder).iterdir() if p.suffix in (".h", ".def"))
    around.append(ROOT / INCLUDE / "gpureduce" / "exact_add.cuh")
    return {
        "flags": [*NVCC_FLAGS, *(f"-I{folder}" for folder in (CSRC, *CUDA_INCLUDES, INCLUDE))],
        "file": KERNEL_TABLE.as_posix(),
        "defines": {kernel.name: kernel.defines() for kernel in read_registry()},
        "sources": {p.relative_to(ROOT).as_posix(): p.read_text() for p in around},
    }


def headers_for_users() -> dict[str, object]:
    """The headers and flags by which gpureduce.kernels compiles a user's kernel."""
    folder = ROOT / CSRC
    files = [p for p in (folder / "emulator" / "include").rglob("*") if p.is_file()]
    files += [*(folder / "shared").glob("*.h"), folder / "dtypes.def"]
    files += [folder / "kernels" / "parts" / name for name in ("common.h", "scan.h")]
    files += [folder / "engine" / "compiled_kernels.h"]
    files += [folder / "cuda" / "device.h", *(folder / "cuda" / "nvrtc").iterdir()]
    texts = {p.relative_to(folder).as_posix(): p.read_text() for p in sorted(files)}
    texts["gpureduce/exact_add.cuh"] = (ROOT / INCLUDE / "gpureduce" / "exact_add.cuh").read_text()
    return {
        "traced": [*TRACED, "-DGR_EMULATOR_TRACED"],
        "traced_by_clang": CLANG_HOOKS,
        "includes": ["emulator/include", "kernels", "."],
        "nvcc": NVCC_FLAGS,
        "cuda_includes": ["cuda", "kernels", "."],
        "files": texts,
    }


def records_of_lectures() -> dict[str, object]:
    """The records of the lectures' experiments on an H100, by experiment."""
    paths = sorted((ROOT / "notebooks" / "data").glob("lecture_*_h100.json"))
    made = [json.loads(path.read_text()) for path in paths]
    return {record["lecture"]: record for record in made}


def assignments() -> dict[str, dict[str, object]]:
    """The files of the assignments for a class, and the texts of bundles, by folder and path."""
    found: dict[str, dict[str, str]] = {}
    folder = ROOT / "notebooks" / "assignments"
    for path in sorted(p for p in folder.rglob("*") if p.suffix in (".cu", ".toml")):
        name, _, rest = path.relative_to(folder).as_posix().partition("/")
        found.setdefault(name, {})[rest] = path.read_text()
    texts = sorted((ROOT / "notebooks" / "bundles").iterdir())
    return {"assignments": {**found}, "bundles": {path.name: path.read_text() for path in texts}}


def git_tree(folder: Path) -> tuple[str, dict[str, str]]:
    """Git's hash of a folder, and the hashes of its entries. Works without git."""
    rows, hashes = [], {}
    for path in folder.iterdir():
        if path.is_dir():
            name = git_tree(path)[0]
        else:
            content = path.read_bytes()
            name = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        mode = "40000" if path.is_dir() else "100755" if os.access(path, os.X_OK) else "100644"
        rows.append((path.name + "/" * path.is_dir(), f"{mode} {path.name}", bytes.fromhex(name)))
        hashes[path.name] = name
    tree = b"".join(entry.encode() + b"\0" + name for _, entry, name in sorted(rows))
    return hashlib.sha1(b"tree %d\0" % len(tree) + tree).hexdigest(), dict(sorted(hashes.items()))


FACTS = "_build.json"
_OTHERS = {
    "_kernels.json": kernel_sources,
    "_nvcc.json": nvcc_recipe,
    "_headers.json": headers_for_users,
    "_records.json": records_of_lectures,
    "_assignments.json": assignments,
}
FILES = (FACTS, *_OTHERS)


def files(facts: dict[str, object]) -> dict[str, object]:
    """The contents of each file. `facts` are those of this build."""
    facts = {"sanitize": SANITIZE, "compiler": ask_compiler("--version"), **facts}
    facts["trees"] = git_tree(ROOT / CSRC)[1]
    return {FACTS: facts} | {name: make() for name, make in _OTHERS.items()}
