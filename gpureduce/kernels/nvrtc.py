"""NVRTC, NVIDIA's compiler as a library: loaded and called through ctypes.

``python nvrtc.py CALL CUBIN`` compiles in a process of its own, which has limits.
"""

from __future__ import annotations

import ctypes
import functools
import pickle
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_Program = ctypes.c_void_p
_COMPILATION_FAILED = 6


class Refused(ValueError):
    """The compiler refuses a text; the message is the compiler's."""


def _texts(texts: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))


class Nvrtc:
    """The library at a path. Raises OSError if it cannot be loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.version = f"NVRTC {major.value}.{minor.value}"

    def _call(self, name: str, *arguments: object) -> bool:
        """Whether a call went well. Raises unless it did, or the compiler refuses the text."""
        code = getattr(self._library, name)(*arguments)
        if code not in (0, _COMPILATION_FAILED):
            said = self._library.nvrtcGetErrorString(code).decode()
            raise RuntimeError(f"{name} of {self.path} failed: {said}")
        return not code

    def _bytes(self, program: _Program, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, data)
        return data.raw

    @functools.cached_property
    def archs(self) -> list[int]:
        """The architectures that it compiles for, as 90 for sm_90."""
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        found = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", found)
        return list(found)

    def cubin(
        self,
        text: str,
        file: str,
        headers: Mapping[str, str],
        kernels: Sequence[str],
        options: Sequence[str],
    ) -> bytes:
        """The machine code of the named instances of kernels. Raises Refused."""
        program = _Program()
        texts, names = _texts(list(headers.values())), _texts(list(headers))
        self._call(
            "nvrtcCreateProgram", ctypes.byref(program), text.encode(), file.encode(),
            len(headers), texts, names,
        )  # fmt: skip
        try:
            for kernel in kernels:
                self._call("nvrtcAddNameExpression", program, kernel.encode())
            if not self._call("nvrtcCompileProgram", program, len(options), _texts(options)):
                log = self._bytes(program, "ProgramLog")
                raise Refused(log.rstrip(b"\0").decode(errors="replace"))
            return self._bytes(program, "CUBIN")
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))


@functools.cache
def _at(path: Path) -> Nvrtc:
    return Nvrtc(path)


def find() -> Nvrtc | None:
    """NVRTC; None if there is none, or the one that is there cannot be loaded."""
    from gpureduce.hardware import toolkit  # which the process of a compilation does without

    path = toolkit.find_library("nvrtc")
    try:
        return _at(path) if path else None
    except OSError:
        return None


if __name__ == "__main__":  # started by cubins.py, without the packages of this Python
    path, *given = pickle.loads(Path(sys.argv[1]).read_bytes())
    try:
        Path(sys.argv[2]).write_bytes(Nvrtc(path).cubin(*given))
    except (Refused, RuntimeError, OSError) as error:
        sys.exit(str(error))
