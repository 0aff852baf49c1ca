""".npy files: headers that are changed, files that are cut off. NumPy itself is the oracle."""

from __future__ import annotations

import io
import json
import math
import os
import tempfile
import warnings
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import gpureduce
from tools.fuzz import commands, consumers, mutations, notes, values
from tools.fuzz.outcomes import DOCUMENTED, Failure, attempt

_MAGIC = b"\x93NUMPY"
_SUMMED = {*values.INTEGERS, *values.FLOATS[:1], *values.FLOATS[2:], *values.COMPLEX}
_DESCRS = (
    "<f4", ">f8", "|b1", "|u1", "<f2", "<c8", ">c16", "<i8", "|O", "|S5", "<U3", "<M8[s]", "<f4x",
    "", "f", "<f16", "<V4", "<f3", "i4,f4", "(2,)<f4", "\\x00", "<i4'", "|V0", "<U0",
)  # fmt: skip
_SHAPES = (
    "(0,)", "()", "(1,)", "(-1,)", "(3, -2)", "(2**70,)", "(9223372036854775807,)", "(1e3,)",
    "(4611686018427387904, 4)", "[3]", "3", "('a',)", "(None,)", "(True,)", "(0, 2**62)",
    "(99999999999999999999999,)", "(1,) * 70", "(" + "1, " * 70 + ")", "(((3,),),)", "(3L,)",
    "(0, 9223372036854775807, 9)", "{}", "(0x10,)",
)  # fmt: skip
_ORDERS = ("True", "False", "0", "None", "'x'", "[]", "1")


def _file(rng: Random) -> Path:
    return Path(tempfile.gettempdir()) / f"{os.getpid()}-{rng.choice('ab')}.npy"


def _header(descr: str, order: str, shape: str) -> bytes:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()


def _packed(rng: Random, header: bytes) -> bytes:
    """A header behind the magic, the version and a length, one of which may be wrong."""
    major = rng.choice((1, 1, 1, 2, 3, 0, 4, 255)) if rng.random() < 0.2 else 1
    wide = 4 if major in (2, 3) else 2
    header += b" " * (63 - (len(_MAGIC) + 2 + wide + len(header)) % 64) + b"\n"
    length = len(header) + (rng.choice((-1, 1, 64, -64, 5000)) if rng.random() < 0.1 else 0)
    length = max(0, length) % (1 << 8 * wide)
    return _MAGIC + bytes((major, 0)) + length.to_bytes(wide, "little") + header


def _whole(rng: Random) -> bytes:
    """A file as NumPy writes it."""
    view = values.view_of(rng, rng.choice(sorted(_SUMMED)))
    array = view.array()
    if rng.random() < 0.3:
        array = array.astype(array.dtype.newbyteorder(rng.choice("<>")))
    if rng.random() < 0.3:
        array = np.asfortranarray(array)
    written = io.BytesIO()
    np.save(written, array)
    return written.getvalue()


def _zip(rng: Random) -> bytes:
    """An archive of arrays, or an empty one."""
    written = io.BytesIO()
    np.savez(written, **{name: np.ones(3) for name in "ab"[: rng.randrange(3)]})
    return written.getvalue() if rng.random() < 0.7 else b"PK\x05\x06" + bytes(18)


def _text(rng: Random) -> bytes:
    whole = _whole(rng)
    way = rng.random()
    if way < 0.2:
        notes.add("whole")
        return whole
    if way < 0.45:
        return mutations.of_bytes(rng, whole[:128]) + whole[128:]
    if way < 0.55:
        return whole[: rng.randrange(len(whole) + 1)]
    if way < 0.6:
        return _zip(rng)
    if way < 0.63:
        return b"\x80\x04" + whole  # as a pickle begins
    descr = repr(rng.choice(_DESCRS)) if rng.random() < 0.5 else "'<i4'"
    if rng.random() < 0.1:
        descr = rng.choice(("[('a', '<f4')]", "['<f4']", "None", "5", "('<f4', (2,))", "[" * 300))
    shape = rng.choice(_SHAPES) if rng.random() < 0.6 else "(4,)"
    header = _header(descr, rng.choice(_ORDERS) if rng.random() < 0.2 else "False", shape)
    if rng.random() < 0.1:
        header = mutations.of_bytes(rng, header)
    return _packed(rng, header) + rng.choice((whole[128:], bytes(64), b""))


def _oracle(path: Path) -> Any:
    """The array that NumPy reads, if it is one of numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            array = np.load(path, allow_pickle=False)
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)  # no negative sizes
        except Exception:
            return None
    if not isinstance(array, np.ndarray) or array.shape != mapped.shape:
        return None
    if array.dtype.newbyteorder("=").name not in _SUMMED:
        return None
    # Booleans of other bytes than 0 and 1 have no sum that NumPy defines.
    return None if array.dtype == bool and array.view(np.uint8).max(initial=0) > 1 else array


def _part(total: float, values_of: Any) -> tuple[float, float]:
    """A part of the right sum, and how far off it may be; nan where it cannot be told."""
    flat = values_of.astype(np.float64).reshape(-1)
    if not np.isfinite(flat).all():
        return math.nan, 0.0
    try:
        exact = math.fsum(flat.tolist())
    except OverflowError:
        return math.nan, 0.0
    if abs(exact) >= float(np.finfo(values_of.dtype).max) * (1 - 1e-3):
        return math.nan, 0.0
    unit = np.finfo(values_of.dtype)
    return exact, abs(exact) * float(unit.eps) + float(unit.smallest_subnormal)


def _check(value: Any, array: Any) -> None:
    """Fail unless the value is the sum of an array: of floats, to the last place."""
    if array.dtype.kind in "biu":
        wanted = int(array.astype(object).sum()) if array.size else 0
        if (int(value) - wanted) % 2**64:
            raise Failure(f"wrong value: {value}, not {wanted}")
        return
    value = complex(value) if array.dtype.kind == "c" else float(value)
    parts = [(value, array)]
    if array.dtype.kind == "c":
        parts = [(value.real, array.real), (value.imag, array.imag)]
    for found, part in parts:
        wanted, off = _part(found, part)
        if not math.isnan(wanted) and not abs(found - wanted) <= off:
            raise Failure(f"wrong value: {found!r}, not {wanted!r}")


def _by_command(rng: Random, path: Path, array: Any) -> str:
    names = rng.choice((["auto"], ["fast"], ["cpu"], ["exact", "numpy"], ["last_block"]))
    status, out, err = commands.run(["sum", str(path), "--strategy", *names, "--json"])
    if status:
        commands.check_refusal(err)
        if out:
            raise Failure(f"output in spite of an error: {out[:80]!r} {err[:200]!r}")
        if array is not None and names == ["auto"]:
            raise Failure(f"a file that NumPy reads was refused: {err!r}")
        return f"exit {status}"
    if array is None:
        return "exit 0"
    if names in (["auto"], ["exact", "numpy"]) or array.dtype.kind in "biu":
        for row in json.loads(out)[:1]:
            _check(row["value"], array)
    return "right"


def _no_bytes(path: Path) -> bool:
    """Whether its elements have no bytes: NumPy ends the process when it maps such a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return np.load(path, allow_pickle=False).dtype.itemsize == 0
        except Exception:
            return path.read_bytes().count(b"0'") > 0


def _by_map(rng: Random, path: Path, array: Any) -> str:
    if _no_bytes(path):
        return "unchecked"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mapped = attempt(lambda: np.load(path, mmap_mode="r", allow_pickle=False))
    if mapped.error is not None:
        return "unchecked"
    device = rng.choice((None, "emulator"))
    name = "exact"
    answer = attempt(lambda: gpureduce.sum(mapped.value, name, device=device).value)
    if answer.error is not None:
        if array is not None and isinstance(mapped.value, np.ndarray):
            raise Failure(f"a whole array was refused: {answer.error!r}") from answer.error
        return answer.name
    if array is not None:
        _check(answer.value, array)
    return "right"


def case(rng: Random) -> str:
    """A file, and its sum by the command line or by a memory map."""
    path = _file(rng)
    path.unlink(missing_ok=True)  # its old memory may still be mapped
    path.write_bytes(_text(rng))
    array = _oracle(path)
    if array is not None:
        notes.add(f"{array.dtype.str} {array.shape[:9]}")
    outcome = rng.choice((_by_command, _by_map))(rng, path, array)
    assert outcome in {*DOCUMENTED, "right", "unchecked", "exit 0", "exit 2", "exit 1"}
    if rng.random() < 0.1:
        consumers.check_next(rng)
    return outcome
