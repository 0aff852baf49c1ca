"""Compiles a kernel for the emulator, by the host's C++ compiler, into the user's cache.

The compiler reads the user's own file, which a file of ours includes. So its messages have the
user's lines; those that point to our files are dropped.
"""

from __future__ import annotations

import atexit
import errno
import functools
import hashlib
import json
import math
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpureduce import _emulator, _emulator_traced
from gpureduce.core import json_files, text_files
from gpureduce.kernels import compiler_process
from gpureduce.kernels.emulated_text import for_the_emulator
from gpureduce.kernels.programs import modern
from gpureduce.kernels.signature import LAUNCH, ROLES, Signature
from gpureduce.kernels.source_text import KernelError
from gpureduce.text import visible

_TIME_S = 60
_KEPT = 400  # compiled kernels in the cache
_KEPT_HEADERS = 4  # precompiled ones, of 20 MB each: two of a version of gpureduce
_HEADER_BYTES = 1 << 24  # of a header that is read here
_OURS = "gpureduce_kernel.cpp"
_PLAIN = ("-O1",)
_COMMON = ("-std=c++17", "-fPIC", "-c", "-fvisibility=hidden", "-fwrapv",
           "-ffp-contract=off", "-w", "-fno-diagnostics-color", "-fmax-errors=20",
           "-fstack-protector-strong")  # fmt: skip
# Indexes of arrays are checked, and functions look whether an array of theirs was overrun.
_BOUNDS = {True: ("-fsanitize=array-bounds",), False: ("-fsanitize=bounds-strict",)}  # by clang
# The kernel's own exit() before the C library's; and an error for functions that are nowhere.
_LINK = ("-shared", "-Wl,-Bsymbolic", "-Wl,-z,defs")
BLOCKS = (32, 64, 128, 256, 512, 1024)
_START = """#define GR_USER_KERNEL 1
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <device.h>
#include <kernel_entry.h>
#include <engine/compiled_kernels.h>
#include <shared/cuda_types.h>

/* A fiber's stack is too small for what exit() does. */
extern "C" void exit(int status) noexcept
{
    _Exit(status);
}

/* What the compiler hands over for an index out of bounds, and for a misaligned address. */
struct gr_spot {
    const char *file;
    unsigned line, column;
};
struct gr_type {
    unsigned short kind, info;
    char name[1];
};
struct gr_index_data {
    gr_spot place;
    gr_type *array, *index;
};
struct gr_pointer_data {
    gr_spot place;
    gr_type *type;
    unsigned char bits, kind;
};

extern "C" GR_UNTRACED void __ubsan_handle_out_of_bounds(gr_index_data *data, unsigned long index)
{
    unsigned bits = 1u << (data->index->info >> 1), is_signed = data->index->info & 1;
    long value = (long)index;
    if (is_signed && bits < 64)
        value = (long)(index << (64 - bits)) >> (64 - bits);
    gr_bad_index(data->place.file, data->place.line, data->place.column, data->array->name, value);
}

extern "C" GR_UNTRACED void __ubsan_handle_type_mismatch_v1(gr_pointer_data *data,
                                                            unsigned long address)
{
    unsigned bytes = 1u << data->bits;
    if (address % bytes)
        gr_misaligned(data->place.file, data->place.line, data->type->name, bytes);
}

extern "C" void __assert_fail(const char *text, const char *file, unsigned line,
                              const char *) noexcept
{
    gr_bad_assertion(file, line, text);
    _Exit(134);
}

extern "C" void __stack_chk_fail(void)
{
    gr_bad_local(__builtin_return_address(0));
}

GR_INTRINSIC long long clock64()
{
    return clock();
}
"""
_WRAPPER = """static void gr_add(gr_kernel_list *list, unsigned block, const void *entry)
{{
    gr_kernel *kernel = &list->kernel[list->count++];
    kernel->load = GR_LOAD_{load};
    kernel->acc = GR_ACC_{acc};
    kernel->block = block;
    kernel->entry = entry;
}}

/* Behind all of this, since macros of the kernel may have any name. */
#define __CUDA_ARCH__ 900
#include "{file}"

{caller}
extern "C" __attribute__((visibility("default"))) void gr_user_kernels(gr_kernel_list *list)
{{
{adds}
}}
"""


def recipe() -> Any:
    """The headers and flags of this build of gpureduce."""
    return json_files.packaged("_headers.json")


def cache_folder() -> Path:
    """The folder for compiled kernels: in XDG_CACHE_HOME or ~/.cache, else a temporary one."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base).absolute() / "gpureduce" / "kernels"  # the compiler runs elsewhere
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return _temporary_folder()


@functools.cache
def _temporary_folder() -> Path:
    folder, owner = Path(tempfile.mkdtemp(prefix="gpureduce-kernels-")), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # not in a child process
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


_DIGEST_BYTES = 32  # of SHA-256, after a library's own bytes


def _is_whole(path: Path) -> bool:
    """Whether a library of the cache is as it was written. A crash of the machine may cut files."""
    try:
        found = path.read_bytes()
    except OSError:
        return False
    return found[-_DIGEST_BYTES:] == hashlib.sha256(found[:-_DIGEST_BYTES]).digest()


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: its command, and the version that it prints."""

    command: tuple[str, ...]
    version: str

    @property
    def is_clang(self) -> bool:
        """Whether it takes clang's flags."""
        return "clang" in self.version

    @property
    def release(self) -> int:
        """The number before the first point of its version."""
        found = re.search(r"(\d+)\.\d+\.\d+", self.version)
        return int(found[1]) if found else 0

    @property
    def flags(self) -> list[str]:
        """Options: bounds are checked, and unwritten local variables hold a pattern."""
        checks = list(_BOUNDS[self.is_clang])
        if self.is_clang or self.release >= 12:
            checks.append("-ftrivial-auto-var-init=pattern")
        return checks

    @property
    def hooks(self) -> list[str]:
        """Of the traced build: hooks that tell volatile accesses from others."""
        if self.is_clang:
            return ["-mllvm", "-tsan-distinguish-volatile=1"] if self.release >= 12 else []
        return ["--param=tsan-distinguish-volatile=1"] if self.release >= 11 else []


@functools.cache
def _compiler(named: str) -> Compiler:
    for words in [named.split()] if named else [["g++"], ["clang++"], ["c++"]]:
        path = shutil.which(words[0]) if words else None
        if not path:
            continue
        command = (os.path.abspath(path), *words[1:])  # it runs elsewhere
        if said := compiler_process.version(command):
            return Compiler(command, said)
    wanted = (
        f"CXX names {named!r}, which is not there" if named else "there is no C++ compiler here"
    )
    raise RuntimeError(
        f"a kernel of yours is compiled by the host's C++ compiler, and {wanted}: install g++ "
        "(Debian and Ubuntu: apt install g++; Fedora: dnf install gcc-c++; conda: conda install "
        "gxx), or name one by the environment's CXX"
    )


def compiler() -> Compiler:
    """The host's C++ compiler. Raises an error that says what to install if there is none."""
    return _compiler(os.environ.get("CXX", ""))


def header_folder() -> Path:
    """The folder of the headers, written on first use."""
    files: dict[str, str] = recipe()["files"]
    key = key_of([json.dumps(files, sort_keys=True)])
    folder = cache_folder() / f"headers-{key}"
    if not _has(folder, files):
        for name, text in files.items():  # other processes write the same
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            text_files.write(folder / name, text)
    return folder


def _has(folder: Path, files: dict[str, str]) -> bool:
    """Whether a folder of the cache has these files. A cleaner of caches may have removed some."""
    try:
        return all((folder / name).read_text("utf-8") == text for name, text in files.items())
    except (OSError, UnicodeDecodeError):
        return False


def key_of(parts: Iterable[str]) -> str:
    """The name of a file in the cache, for all that the file depends on."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Source:
    """A kernel's text, the name of its file in messages, and the folder of its own headers."""

    text: str
    file: str
    folder: str | None = None

    def for_the_emulator(self) -> str:
        """The text as the emulator takes it."""
        return for_the_emulator(modern(self.text))

    def included(self) -> list[str]:
        """The texts of the headers that it includes from its own folder."""
        texts, seen, todo = [], set(), [self.text]
        while todo and self.folder:
            for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', todo.pop(), re.M):
                path = Path(self.folder) / name
                if path not in seen:
                    seen.add(path)
                    todo.append(_header(path))
                    texts.append(todo[-1])
        return texts


def _header(path: Path) -> str:
    """The text of a header. Empty if it cannot be read: the compiler says why.

    Of a larger one, its size and its time.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or not found.st_size:  # /proc has files without a size
            return ""
        if found.st_size > _HEADER_BYTES:
            return f"{found.st_size} {found.st_mtime_ns}"
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""


def instances(signature: Signature, pair: tuple[str, str]) -> list[tuple[int, str]]:
    """The instances of a kernel for a pair of types: the block size, or 0 for any, and its name.

    A flag of a template is false: the code for any size. `In` is the type of the parameter, as in
    `In in`, or of an element, as in `const In *in`.
    """
    load, acc = pair
    known = {"In": f"const type_{load} *", "Acc": f"type_{acc}", "flag": "false"}
    if "*" in signature.type_of("in"):
        known["In"] = f"type_{load}"
    found = []
    for block in BLOCKS if signature.block else (0,):
        now = known | {"block": str(block)}
        arguments = [now.get(kind, kind) for kind in signature.template]
        name = signature.scope + signature.name
        found.append((block, name + (f"<{', '.join(arguments)}>" if arguments else "")))
    return found


# A kernel whose parameters have another order than ours is called by one that has our order.
_ANY_POINTER = """struct gr_any_pointer {
    const void *address;
    template <typename T> DEVICE operator T *() const
    {
        return (T *)address;
    }
};
"""


def in_our_order(signature: Signature, pair: tuple[str, str], is_device: bool) -> str:
    """The text of kernels that call each instance, with its parameters in its own order."""
    if signature.is_usual:
        return ""
    texts = [_ANY_POINTER.replace("DEVICE", "__device__" if is_device else "GR_UNTRACED")]
    numbers = LAUNCH | {"n": f"n / {signature.per_n}" if signature.per_n > 1 else "n"}
    passed = [numbers.get(one.role, f"gr_any_pointer{{{one.role}}}")
              for one in signature.parameters]  # fmt: skip
    load, acc, kind = *pair, "__global__" if is_device else "static"
    for number, (_, name) in enumerate(instances(signature, pair)):
        texts.append(
            f"{kind} void gr_in_order_{number}(const type_{load} *in, type_{acc} *out, size_t n, "
            f"type_{acc} *work, unsigned *ticket)\n{{\n    ::{name}({', '.join(passed)});\n}}\n"
        )
    return "\n".join(texts)


_OVERLOADED = {"max", "min", *dir(math)}  # by functions of the C++ library


def _wrapper(signature: Signature, file: str, pair: tuple[str, str]) -> str:
    load, acc = pair
    names = ", ".join(f'"{signature.named(role) or role}"' for role in ROLES)
    adds = [f"    static const char *const names[] = {{{names}, nullptr}};"]
    for number, (block, name) in enumerate(instances(signature, pair)):
        # std has a `reduce`, too
        entry = f"::{name}" if signature.is_usual else f"gr_in_order_{number}"
        if entry[2:] in _OVERLOADED:
            entry = f"(void (*)({', '.join(one.type for one in signature.parameters)})){entry}"
        adds.append(f"    gr_add(list, {block}, kernel_entry({entry}, names));")
    caller = in_our_order(signature, pair, is_device=False)
    return _WRAPPER.format(file=file, load=load, acc=acc, adds="\n".join(adds), caller=caller)


def _starts(commands: list[list[str]], headers: Path) -> list[str]:
    """The beginnings of programs; g++ has precompiled each by one of these commands.

    That halves the time of a compilation. Without g++'s file, the compiler reads the text.
    """
    chosen = compiler()
    names = [f"start-{key_of([_START, chosen.version, *command])}.h" for command in commands]
    ends = [""] if chosen.is_clang else ["", ".gch"]
    todo = [(command, name) for command, name in zip(commands, names, strict=True)
            if not all((headers / (name + end)).exists() for end in ends)]  # fmt: skip
    if todo:
        with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
            for _, name in todo:
                Path(folder, name).write_text(_START, "utf-8")
            runs = [[*command, "-x", "c++-header", name, "-o", f"{name}.gch"]
                    for command, name in todo if not chosen.is_clang]  # fmt: skip
            done = compiler_process.run(runs, Path(folder), _TIME_S) if runs else []
            made = [run[-1] for run, (status, _) in zip(runs, done, strict=True) if not status]
            for name in (*(name for _, name in todo), *made):
                with Path(folder, name).open("rb+") as file:
                    os.fsync(file)  # a crash of the machine cuts no file of the cache
                os.replace(Path(folder, name), headers / name)
    return [str(headers / name) for name in names]


def libraries(source: Source, signature: Signature, pair: tuple[str, str]) -> tuple[Path, Path]:
    """The compiled kernel for one pair of types: for the plain and for the traced emulator."""
    chosen, headers, known = compiler(), header_folder(), recipe()
    traced = [*known["traced"], *(known["traced_by_clang"] if chosen.is_clang else [])]
    traced += [*chosen.hooks, "-fsanitize=alignment"]
    includes = [f"-I{headers / folder}" for folder in known["includes"]]
    own = [f"-iquote{source.folder}"] if source.folder else []
    builds = ((_PLAIN, _emulator.__file__), (tuple(traced), _emulator_traced.__file__))
    text, wrapper = source.for_the_emulator(), _wrapper(signature, source.file, pair)
    paths, jobs = [], []
    for flags, module in builds:
        command = [*chosen.command, *_COMMON, *chosen.flags, *flags, *includes]
        stamp = str(os.stat(module).st_mtime_ns)
        parts = [text, _START, wrapper, *source.included(), *command, *own, *_LINK]
        key = key_of([*parts, chosen.version, module, stamp])
        paths.append(cache_folder() / f"{key}.so")
        if not _is_whole(paths[-1]):
            jobs.append((command, module, paths[-1]))
        else:
            os.utime(paths[-1])
    if jobs:
        starts = _starts([job[0] for job in jobs], headers)
        for (command, _, _), start in zip(jobs, starts, strict=True):
            command += [*own, "-include", start]
        _compile_all(jobs, source.file, text, wrapper)
        prune()
    return paths[0], paths[1]


def _compile_all(
    jobs: list[tuple[list[str], str, Path]], file: str, text: str, wrapper: str
) -> None:
    with tempfile.TemporaryDirectory(dir=cache_folder()) as name:
        folder = Path(name)
        (folder / file).write_text(text, "utf-8")
        (folder / _OURS).write_text(wrapper, "utf-8")
        same = [f"-ffile-prefix-map={folder}=.", "-x", "c++", _OURS]
        _run([[*job[0], *same, "-o", f"{i}.o"] for i, job in enumerate(jobs)], folder, file)
        # Linked apart: by the traced build's flags, ThreadSanitizer's library would come in.
        link = [*compiler().command, *_LINK]
        links = [[*link, f"{i}.o", job[1], "-o", f"{i}.so"] for i, job in enumerate(jobs)]
        _run(links, folder, file)
        for i, (_, _, path) in enumerate(jobs):
            made = folder / f"{i}.so"
            digest = hashlib.sha256(made.read_bytes()).digest()
            with made.open("ab") as library:
                library.write(digest)
            os.replace(made, path)


def _run(commands: list[list[str]], folder: Path, file: str) -> None:
    """Runs compilers; raises what the first failed one says of the kernel, or of the disk."""
    for status, said in compiler_process.run(commands, folder, _TIME_S):
        if status and os.strerror(errno.ENOSPC) in said:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder.parent))
        if status:
            raise KernelError(told(said, file))


_SIZE = re.compile(r":\d+: error: .*(?:size of array|array bound|flexible arr|constant size).*")
_NO_CONSTANT = (
    ": error: the size of a __shared__ array must be a constant, or use extern __shared__"
)
_OPEN = re.compile(r"error: expected .\}. at end of input")
_PLACE = re.compile(r"\bgr_\w*shared")  # in place of a __shared__ declaration
_MESSAGE = re.compile(r"^(\S[^:\n]*):(\d+):(?:(\d+):)? (fatal error|error|warning|note|required)\b")


def _line_of(message: str) -> str:
    return ":".join(message.split(":")[:2])


def told(said: str, file: str) -> str:
    """The compiler's messages about the user's lines; all of them if none is about those."""
    kept: list[str] = []
    rewritten: set[str] = set()
    keeps = ours = False
    for line in said.splitlines():
        found = _MESSAGE.match(line)
        if found:
            keeps = os.path.basename(found[1]) == file
            line = line.replace(found[1], file, 1)
        elif not re.match(r"\s", line):  # "In file included from", "compilation terminated"
            keeps = False
        # The compiler's copy of a line of ours, and the marks below it
        is_mark = ours and re.match(r"\s*\|", line)
        ours = not found and bool(_PLACE.search(line) or is_mark)
        if keeps and ours and kept:
            rewritten.add(_line_of(kept[-1]))
        if keeps and not ours:
            kept.append(_SIZE.sub(_NO_CONSTANT, line))
    first = {_line_of(one): one for one in reversed(kept)}  # later ones follow from it
    kept = [one for one in kept if one is first[_line_of(one)] or _line_of(one) not in rewritten]
    if not any(": error" in line or ": fatal error" in line for line in kept):
        if why := compiler_process.beyond_a_limit(said):
            return why
        kept = [*_elsewhere(said, file), *kept]
    if re.search(r"fatal error: (?:cub|thrust)/", said):
        kept.append("the emulator has no CUB and no Thrust: add up the block's elements by hand")
    if re.search(r"blockDim.*(?:not usable in a constant|non-constant|constant value)", said):
        kept.append("blockDim is no constant: make the block size a parameter of the template")
    return visible("the compiler refuses the kernel:\n" + "\n".join(kept))


_UNDEFINED = re.compile(r"undefined (?:reference to|symbol:) [`']?([^'(]+)")  # GNU ld and lld


def _elsewhere(said: str, file: str) -> list[str]:
    """Errors at lines that are not the user's: what is wrong, and the user's line that needs it."""
    found = []
    for line in said.splitlines():
        match = _MESSAGE.match(line)
        if match and "error" in match[4]:
            found.append(line[match.end(4) - len(match[4]) :])
        elif undefined := _UNDEFINED.search(line):
            found.append(f"there is no function {undefined[1]} that a kernel can call")
        elif "cannot find" in line:
            found.append(re.sub(r"^.*?: ", "", line))
    if _OPEN.search(said):
        found = ["error: a } is missing"]
    unique = list(dict.fromkeys(found))[:5] or said.splitlines()[:5]
    return [f"{file}: {line}" for line in unique]


def prune() -> None:
    """Removes the compiled kernels and precompiled headers that were used, or made, longest ago."""
    kernels = (*cache_folder().glob("*.so"), *cache_folder().glob("*.cubin"))
    for paths, kept in ((kernels, _KEPT), (cache_folder().glob("headers-*/*.gch"), _KEPT_HEADERS)):
        rows = []
        for path in paths:
            try:
                rows.append((path.stat().st_mtime, path))
            except OSError:
                continue
        for _, path in sorted(rows)[:-kept]:
            path.unlink(missing_ok=True)
