"""Runs the fuzzers and the threads' tests on builds with sanitizers.

    python tools/sanitizers.py [address] [thread] [--cases N] [--jobs N]

address: everything in C and C++ is built with ASan and UBSan, and all kinds of tools/fuzz run.

thread: the host's C (threads, cpu, exact, engine, bindings) is built with TSan. It runs the kind
`threads` of tools/fuzz, tests of the package with many threads, and the C programs of tests/native
that test threads. The emulator's C++ and its kernels are built without TSan, because TSan does not
support their stack switching. It does not support fork() with threads either.

Each build is made from a copy of the tree, into a folder of its own. NumPy and the other packages
are those of the running Python.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILDS = ("address", "thread")
_TSAN = "halt_on_error=1 exitcode=66 die_after_fork=0"
_TESTS = ("core/test_many_threads.py", "core/test_thread_pool.py", "several/test_host_arrays.py")
# When a thread has been joined, the dynamic linker frees its thread-local memory, which the thread
# had allocated. TSan does not see that glibc waits for the thread's end. Python needs none.
_SUPPRESSIONS = "race:_dl_deallocate_tls\n"
_WITH_TSAN = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-pthread", "-fsanitize=thread"]


def run(command: Sequence[str | Path], **environment: str) -> bool:
    """Runs a command. Returns whether its exit status was 0."""
    print("$", *command, flush=True)
    done = subprocess.run(list(map(str, command)), env={**os.environ, **environment})
    return done.returncode == 0


def copy_tree(folder: Path) -> Path:
    """Copies the files that git tracks or does not ignore, so without earlier builds."""
    listed = [
        "git",
        "-C",
        str(ROOT),
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    names = subprocess.run(listed, capture_output=True, check=True).stdout
    folder.mkdir(exist_ok=True)
    copy = ["xargs", "-0", "cp", "--parents", "-t", str(folder)]
    subprocess.run(copy, input=names, cwd=ROOT, check=True)
    return folder


def install(folder: Path, **environment: str) -> Path:
    """Builds the package from a copy of the tree. Returns the folder for Python's path."""
    tree, target = copy_tree(folder / "tree"), folder / "site"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target)]
    if importlib.util.find_spec("setuptools"):
        command.append("--no-build-isolation")
    if not run([*command, tree], GPUREDUCE_CUDA="0", **environment):
        sys.exit("the build failed")
    return target


def library(name: str) -> str:
    """The path of one of gcc's runtime libraries."""
    asked = ["gcc", f"-print-file-name={name}"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def fuzz(site: Path, kind: str, options: argparse.Namespace, **environment: str) -> bool:
    """Runs the fuzz cases of a kind with the package in the folder `site`."""
    command = [sys.executable, "-P", ROOT / "tools" / "fuzz", kind]
    command += ["--cases", str(options.cases), "--jobs", str(options.jobs), "--timeout", "120"]
    return run(command, PYTHONPATH=str(site), **environment)


def address(folder: Path, options: argparse.Namespace) -> bool:
    """ASan and UBSan: all kinds."""
    site = install(folder, GPUREDUCE_SANITIZE="address,undefined")
    return fuzz(
        site, "all", options,
        LD_PRELOAD=f"{library('libasan.so')}:{library('libubsan.so')}",
        ASAN_OPTIONS="detect_leaks=0",
        UBSAN_OPTIONS="print_stacktrace=1",
    )  # fmt: skip


def thread(folder: Path, options: argparse.Namespace) -> bool:
    """TSan: the C programs, and several threads of Python."""
    clean = all([run([program, *words], TSAN_OPTIONS=_TSAN, GPUREDUCE_THREADS="3")
                 for program, words in programs(folder)])  # fmt: skip
    site = install(folder, GPUREDUCE_SANITIZE="thread")
    (folder / "suppressions").write_text(_SUPPRESSIONS)
    tsan = f"{_TSAN} suppressions={folder / 'suppressions'}"
    preload = {"LD_PRELOAD": library("libtsan.so"), "TSAN_OPTIONS": tsan}
    test = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not gpu"]
    tested = run(
        [*test, *(ROOT / "tests" / name for name in _TESTS)],
        PYTHONPATH=str(site), GPUREDUCE_THREADS="3", **preload,
    )  # fmt: skip
    return fuzz(site, "threads", options, **preload) and tested and clean


def programs(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """The C programs that test threads, built with TSan, with their arguments."""
    csrc, tests = ROOT / "csrc", ROOT / "tests" / "native"
    includes = [csrc, csrc / "threads", csrc / "emulator" / "include", tests]
    late = [*sorted((csrc / "threads").glob("*.c")), tests / "late_runtime.c"]
    staging = [csrc / "transfer" / "staging.c", csrc / "transfer" / "pinned_memory.c"]
    parts = ("control_group", "interrupts", "processors", "shares")
    pool = [csrc / "threads" / f"{part}.c" for part in parts]
    # Not late_results.c: a thread plays the GPU, and its plain writes are read atomically.
    sources = {"pool_regions": pool, "staged_copies": [*late, *staging]}
    runs = {
        "pool_regions": [[]],
        "staged_copies": [["copies", "3", "2", "8"], ["interrupted", "17"], ["failing", "40"]],
    }
    for name, others in sources.items():
        command = ["gcc", *_WITH_TSAN, *(f"-I{path}" for path in includes), *map(str, others)]
        built = run([*command, str(tests / f"{name}.c"), "-o", str(folder / name)])
        if not built:
            sys.exit(f"{name} could not be built")
        yield from ((folder / name, words) for words in runs[name])


def main() -> int:
    """Runs the sanitizers of the command line. Returns 1 if any found an error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "builds", nargs="*", metavar="BUILD", help="address or thread; both by default"
    )
    parser.add_argument("--cases", type=int, default=10_000, help="of each kind (default: 10000)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    if set(options.builds) - set(BUILDS):
        parser.error(f"the builds are {' and '.join(BUILDS)}")
    clean = []
    for name in options.builds or BUILDS:
        with tempfile.TemporaryDirectory(prefix=f"{name}-") as folder:
            clean.append({"address": address, "thread": thread}[name](Path(folder), options))
    return 0 if all(clean) else 1


if __name__ == "__main__":
    sys.exit(main())
