"""DLPack: structures and producers that are whole, and ones that are changed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from producers import (
    EXCHANGE_NAME,
    STREAM,
    TENSOR,
    DLDataType,
    DLDevice,
    DLExchange,
    DLManaged,
    DLTensor,
    DLVersioned,
    new_capsule,
)
from tools.fuzz import consumers, notes, values
from tools.fuzz.consumers import EITHER, RAISES, RIGHT, UNCHECKED

CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
BFLOAT = 4
MOST_DIMS = 64
DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_SPARE = 160  # sizes and strides beyond those that there are


@dataclass
class Raw:
    """A producer's DLPack structure, and the form in which it exports it."""

    address: int
    ndim: int
    shape: list[int] | None
    strides: list[int] | None
    code: int
    bits: int
    lanes: int = 1
    byte_offset: int = 0
    device: tuple[int, int] = (2, 0)
    named: Any = (2, 0)  # by __dlpack_device__
    old: bool = False
    version: tuple[int, int] = (1, 0)
    flags: int = 0
    capsule: bytes | None = None
    exchange: bool = False
    # A capsule that goes spoils its structure. That calls Python, which loses a pending exception.
    spoils: bool = False

    def fill(self, tensor: DLTensor) -> list[object]:
        """Write it to a structure; what that points to is returned, and must be kept."""
        tensor.data = self.address
        tensor.device = DLDevice(*self.device)
        tensor.ndim = self.ndim
        tensor.dtype = DLDataType(self.code, self.bits, self.lanes)
        tensor.byte_offset = self.byte_offset
        kept: list[object] = []
        for name, numbers in (("shape", self.shape), ("strides", self.strides)):
            setattr(tensor, name, None)
            if numbers is not None:
                words = (ctypes.c_int64 * _SPARE)(*numbers, *[1] * (_SPARE - len(numbers)))
                setattr(tensor, name, words)
                kept.append(words)
        return kept

    def give(self) -> tuple[object, list[object]]:
        """A capsule, and what must be kept as long as it is used."""
        managed = DLManaged() if self.old else DLVersioned()
        kept = [managed, *self.fill(managed.tensor)]
        if not self.old:
            managed.major, managed.minor = self.version
            managed.flags = self.flags
        usual = b"dltensor" if self.old else b"dltensor_versioned"
        name = usual if self.capsule is None else self.capsule
        at, size = ctypes.addressof(managed), ctypes.sizeof(managed)
        end = DESTRUCTOR(lambda _: ctypes.memset(at, 0xA5, size)) if self.spoils else DESTRUCTOR()
        kept += [name, end]
        return new_capsule(at, name, ctypes.cast(end, ctypes.c_void_p)), kept


def raw_of(view: values.View) -> Raw:
    kind = view.dtype
    code = BFLOAT if view.name == "bfloat16" else CODES[kind.kind]
    strides = list(view.strides)
    return Raw(view.address, len(view.shape), list(view.shape), strides, code, kind.itemsize * 8)


@dataclass
class Case(consumers.Case):
    raw: Raw
    hooks: dict[str, Callable[[], Any]] = field(default_factory=dict)
    later: Raw | None = None  # the structure of all exports but the first
    kept: list[object] = field(default_factory=list)

    def shape(self) -> list[int]:
        """The sizes that it says; those of the view where it says none."""
        return list(self.view.shape) if self.raw.shape is None else self.raw.shape

    def empty(self) -> bool:
        return 0 in self.shape()[: max(0, self.raw.ndim)]


class Producer:
    """An object that speaks DLPack as a case has it."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.asked = 0

    def __dlpack_device__(self) -> Any:
        hook = self.case.hooks.get("device")
        return hook() if hook else self.case.raw.named

    def __dlpack__(self, *, stream: object = None, **more: object) -> Any:
        case = self.case
        if "dlpack" in case.hooks:
            return case.hooks["dlpack"]()
        if case.raw.old and more:
            raise TypeError("unexpected keyword argument 'max_version'")
        raw = case.later if case.later and self.asked else case.raw
        self.asked += 1
        capsule, kept = raw.give()
        case.kept.append(kept)
        return capsule


def _exchanged(case: Case) -> object:
    """A producer with a table of C functions, of a type of its own."""

    def tensor(_: object, out: Any) -> int:
        case.kept.append(case.raw.fill(out[0]))
        return 0

    table = DLExchange(*case.raw.version, (None,) * 4, TENSOR(tensor), STREAM(lambda *_: 0))
    capsule = new_capsule(ctypes.addressof(table), EXCHANGE_NAME, None)
    made = type("Exchanged", (Producer,), {"__dlpack_c_exchange_api__": capsule, "kept": table})
    return made(case)


# --- changes: each says what must come of it -----------------------------------------------------

HUGE = (2**31, 2**32, 2**40, 2**62, 2**63 - 1)


def _ndim(case: Case) -> None:
    case.raw.ndim = case.rng.choice((-1, -(2**31), MOST_DIMS + 1, 100, 2**31 - 1))
    case.expect(RAISES)


def _null_shape(case: Case) -> None:
    case.raw.shape = None
    if case.raw.ndim > 0:
        case.expect(RAISES)


def _null_strides(case: Case) -> None:
    if case.raw.strides is not None:
        case.expect(EITHER)  # an earlier change of the strides is gone
    case.raw.strides = None
    case.view.strides = values.packed(case.view.shape)


def _negative_size(case: Case) -> None:
    if case.shape():
        was_empty = case.empty()
        at = case.rng.randrange(len(case.shape()))
        case.shape()[at] = case.rng.choice((-1, -5, -(2**31), -(2**63)))
        case.expect(UNCHECKED if was_empty else RAISES)


def _huge_size(case: Case) -> None:
    if len(case.shape()) > 1 and not case.empty():
        for at in case.rng.sample(range(len(case.shape())), 2):
            case.shape()[at] = case.rng.choice(HUGE[3:])
        case.expect(RAISES)


def _empty(case: Case) -> None:
    """One size is 0: what the others are does not matter then."""
    if case.shape():
        for at in range(len(case.shape())):
            case.shape()[at] = case.rng.choice((0, 1, 2, *HUGE))
        case.shape()[case.rng.randrange(len(case.shape()))] = 0
        case.raw.address = case.rng.choice((0, case.raw.address))
        case.view.shape = (0,)
        case.view.strides = (1,)
        case.expect(EITHER)


def _null_data(case: Case) -> None:
    case.raw.address = 0
    case.raw.byte_offset = case.rng.choice((0, 0, 16, 4096))
    case.expect(EITHER if case.empty() else RAISES)


def _wrapping_stride(case: Case) -> None:
    """The byte offset of the last element does not fit into 63 bits."""
    shape = case.shape()
    longer = [at for at, size in enumerate(shape) if size > 1]
    if longer and not case.empty():
        if case.raw.strides is None:
            case.raw.strides = list(case.view.strides)
        size = case.view.dtype.itemsize
        case.raw.strides[case.rng.choice(longer)] = case.rng.choice(
            (2**63 // size, -(2**63) // size, 2**63 - 1, 2**62, -(2**62))
            if size > 1
            else (2**63 - 1, -(2**63))
        )
        case.expect(RAISES)


def _unused_stride(case: Case) -> None:
    """Strides of sizes 1 mean nothing."""
    for at, size in enumerate(case.shape()):
        if size == 1 and case.raw.strides is not None:
            case.raw.strides[at] = case.rng.choice((0, -1, 2**62, -(2**63), 2**63 - 1))


def _byte_offset(case: Case) -> None:
    part = case.rng.choice((0, 1, 2, 3)) * case.view.dtype.itemsize
    case.raw.byte_offset += part
    case.raw.address -= part


def _wrapping_offset(case: Case) -> None:
    """Data and offset together are the address, but only modulo 2^64."""
    part = case.rng.choice((1, 8, 4096, 2**63))
    case.raw.address += case.raw.byte_offset + part
    case.raw.byte_offset = 2**64 - part
    case.expect(EITHER)


def _misaligned(case: Case) -> None:
    case.raw.byte_offset += 1
    if case.view.dtype.itemsize > 1:
        case.expect(UNCHECKED)
    else:
        case.view.first += 1


def _dtype(case: Case) -> None:
    """Another dtype: of none that there is, or of elements that are read as others."""
    way = case.rng.randrange(3)
    if way == 0:
        case.raw.lanes = case.rng.choice((0, 2, 4, 65535))
        case.expect(RAISES)
    elif way == 1:
        case.raw.code = case.rng.choice((3, 7, 8, 12, 17, 100, 255))
        case.expect(RAISES)
    else:
        case.raw.bits = case.rng.choice((0, 1, 4, 7, 8, 12, 16, 24, 32, 48, 64, 65, 128, 255))
        case.expect(RAISES if case.raw.bits % 8 or not case.raw.bits else UNCHECKED)


def _other_device(case: Case) -> None:
    other = case.rng.choice(((1, 0), (2, 1), (2, 7), (2, -1), (3, 0), (10, 0), (13, 0), (99, 0)))
    if case.rng.random() < 0.5:
        case.raw.device = other
    else:
        case.raw.named = other
    if case.rng.random() < 0.3:
        case.raw.device = case.raw.named = other
    case.expect(EITHER)


ODD = (None, (), (2,), (2, 0, 0), ("a", 0), [2, 0], (2**31, 0), (2, 2**63), (2.5, 0), "20", 2,
       (2, None), {2: 0}, (True, False), (-(2**70), 0))  # fmt: skip


def _odd_device(case: Case) -> None:
    case.raw.named = case.rng.choice(ODD)
    if case.rng.random() < 0.2:
        case.raw.named = (consumers.Index(2, case.mischief), 0)
    case.expect(EITHER)


def _raising(case: Case) -> None:
    name = case.rng.choice(("device", "dlpack"))
    case.hooks[name] = case.mischief
    case.expect(UNCHECKED)


def _type_error(case: Case) -> None:
    def refuse() -> Any:
        raise TypeError("for every argument")

    case.hooks["dlpack"] = refuse
    case.expect(RAISES)


def _odd_capsule(case: Case) -> None:
    odd = case.rng.choice((None, 5, "dltensor", b"dltensor", (1, 2), object(), Producer(case)))
    case.hooks["dlpack"] = lambda: odd
    case.expect(RAISES)


def _capsule_name(case: Case) -> None:
    names = (b"used_dltensor", b"used_dltensor_versioned", b"", b"x", b"dltensor\x20")
    case.raw.capsule = case.rng.choice(names)
    case.expect(RAISES if not case.raw.exchange else EITHER)


def _version(case: Case) -> None:
    case.raw.version = case.rng.choice(((0, 8), (1, 99), (2, 0), (2**32 - 1, 0), (1, 2**32 - 1)))
    if not case.raw.old:
        case.expect(RIGHT if case.raw.version[0] == 1 else RAISES)
    if case.raw.exchange:
        case.expect(EITHER)


def _flags(case: Case) -> None:
    case.raw.flags = case.rng.choice((1, 2, 3, 2**63))
    case.expect(EITHER)


def _changing(case: Case) -> None:
    """The second time it gives away something else: the sum must be one of the two."""
    other = values.view_of(case.rng)
    case.later = raw_of(other)
    case.totals.append((other.name, other.total()))
    case.expect(EITHER)


CHANGES = (_ndim, _null_shape, _null_strides, _negative_size, _huge_size, _empty, _null_data,
           _wrapping_stride, _unused_stride, _byte_offset, _wrapping_offset, _misaligned, _dtype,
           _other_device, _odd_device, _raising, _type_error, _odd_capsule, _capsule_name,
           _version, _flags, _changing)  # fmt: skip


def case(rng: Random) -> str:
    view = values.view_of(rng)
    notes.add(view.name)
    made = Case(rng, view, raw_of(view))
    made.raw.old = rng.random() < 0.3
    made.raw.exchange = rng.random() < 0.15
    for change in rng.sample(CHANGES, rng.choice((0, 1, 1, 1, 2))):
        notes.add(change.__name__.strip("_"))
        change(made)
    refusals = made.refusals
    made.totals.insert(0, (view.name, view.total()))
    used = consumers.consumer(rng)
    notes.add(used.name)
    made.raw.spoils = made.wanted == RIGHT and used.plain and not refusals
    array = _exchanged(made) if made.raw.exchange else Producer(made)
    if made.raw.exchange and made.wanted == RAISES and made.hooks:
        made.wanted = EITHER  # its methods are not called
    return made.outcome(used, array, refusals)
