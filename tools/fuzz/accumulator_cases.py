"""Bytes of accumulators: changed ones are refused, or read and written back as they were."""

from __future__ import annotations

import copy
import pickle
from random import Random
from typing import Any

import numpy as np

from gpureduce import Accumulator
from tools.fuzz import consumers, mutations, notes, values
from tools.fuzz.outcomes import DOCUMENTED, Failure, attempt

_DTYPES = (*values.FLOATS, *values.COMPLEX)
_HEADER, _CHECKSUM = 16, 8
_TOPS = (0, 2**17, 2**18 - 1, 2**18, 2**31, 2**32 - 2**18, 2**32 - 1)
_SPECIAL = (np.inf, -np.inf, np.nan, 5e-324, -0.0, 1.7e308, 65504.0, 1.0)


def _checksum(data: bytes) -> int:
    """FNV-1a of 64 bits, as csrc/exact/exact_bytes.c has it."""
    made = 0xCBF29CE484222325
    for byte in data:
        made = (made ^ byte) * 0x100000001B3 % 2**64
    return made


def _signed(data: bytes) -> bytes:
    """The same with a checksum that fits."""
    body = data[:-_CHECKSUM] if len(data) > _CHECKSUM else data
    return body + _checksum(body).to_bytes(_CHECKSUM, "little")


def _whole(rng: Random) -> Accumulator:
    """An accumulator of elements of all sizes."""
    name = rng.choice(_DTYPES)
    made = Accumulator(name)
    for _ in range(rng.randrange(3)):
        view = values.view_of(rng)
        if view.dtype.kind != "c" or name in values.COMPLEX:
            made.add(view.array())
    if rng.random() < 0.5:
        scale = 2.0 ** rng.choice((0, -1074, -1000, 900, 1000, -30))
        made.add(np.array([rng.gauss(0, 1) * scale for _ in range(rng.randrange(9))]))
    if rng.random() < 0.2:
        made.add(np.array([rng.choice(_SPECIAL)]))
    return made


def _fields(rng: Random, data: bytes) -> bytes:
    """A field of the format with another value, and a checksum that fits."""
    made = bytearray(data)
    way = rng.randrange(8)
    if way < 4:
        made[rng.randrange(4, 8)] = rng.choice((0, 1, 2, 3, 4, 5, 8, 16, 17, 34, 51, 128, 255))
    elif way == 4:
        count = rng.choice((0, 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1))
        made[8:16] = count.to_bytes(8, "little")
    elif way == 5:
        at = rng.randrange(_HEADER, len(made) - _CHECKSUM)
        made[at : at + 4] = rng.choice((b"\xff" * 4, b"\0\0\0\x80", b"\xff\xff\xff\x7f"))
    elif way == 6:  # the digit at the top
        made[-_CHECKSUM - 4 : -_CHECKSUM] = rng.choice(_TOPS).to_bytes(4, "little")
    else:
        made = bytearray(mutations.of_bytes(rng, data))
    return _signed(bytes(made))


def _as_buffer(rng: Random, data: bytes) -> Any:
    """The bytes in another object, or something that is none."""
    way = rng.randrange(8)
    if way == 0:
        return bytearray(data)
    if way == 1:
        return memoryview(bytes(b for byte in data for b in (byte, 0)))[::2]
    if way == 2:
        return np.frombuffer(data, np.uint8)
    if way == 3:
        return rng.choice((None, 5, "text", [1, 2], object(), np.array([object()]), 2.5, -1))
    return data


def _check_read(rng: Random, read: Accumulator, data: bytes) -> str:
    """What is read is written back, and works."""
    if read.to_bytes() != data:
        raise Failure("the bytes that were read are not those that are written")
    for again in (pickle.loads(pickle.dumps(read)), copy.deepcopy(read), read.copy()):
        if again != read or hash(again) != hash(read):
            raise Failure("a copy differs")
    used = {
        "value": lambda: read.value(rng.choice((None, *_DTYPES))),
        "repr": lambda: repr(read),
        "double": lambda: (read + read).to_bytes(),
        "add": lambda: read.copy().add(np.ones(3, np.float32)).to_bytes(),
    }
    if rng.random() < 0.2:
        used["many"] = lambda: _doubled(read)
    for name, call in used.items():
        answer = attempt(call)
        if answer.error is not None:
            notes.add(name)
            return answer.name
    return "right"


def _doubled(read: Accumulator) -> bytes:
    """Added to itself until the count cannot grow."""
    made = read.copy()
    for _ in range(70):
        made += made.copy()
    return made.to_bytes()


def case(rng: Random) -> str:
    """Bytes, whole or changed, and what from_bytes() makes of them."""
    whole = _whole(rng)
    data = whole.to_bytes()
    way = rng.choice(("whole", "bytes", "signed", "fields", "fields"))
    notes.add(way)
    if way == "bytes":
        data = mutations.of_bytes(rng, data)
    elif way == "signed":
        data = _signed(mutations.of_bytes(rng, data))
    elif way == "fields":
        data = _fields(rng, data)
    given = _as_buffer(rng, data)
    answer = attempt(lambda: Accumulator.from_bytes(given))
    if answer.error is not None:
        if way == "whole" and isinstance(given, bytes):
            raise Failure(f"whole bytes were refused: {answer.error!r}") from answer.error
        return answer.name
    outcome = _check_read(rng, answer.value, data)
    assert outcome in {*DOCUMENTED, "right"}
    if way == "whole" and answer.value != whole:
        raise Failure("what was read differs from what was written")
    if rng.random() < 0.05:
        consumers.check_next(rng)
    return outcome
