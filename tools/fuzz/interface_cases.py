"""``__cuda_array_interface__`` and CuPy's attributes: whole ones, and ones that are changed."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from producers import fake_cupy, like_cupy
from tools.fuzz import consumers, notes, values
from tools.fuzz.consumers import EITHER, RAISES, RIGHT, UNCHECKED, Index

sys.modules.update(fake_cupy())


def _typestr(view: values.View) -> str:
    return "<V2" if view.name == "bfloat16" else view.dtype.str


@dataclass
class Case(consumers.Case):
    said: dict[str, Any]
    show: Callable[[], Any] | None = None  # in place of the dict
    junk: list[object] = field(default_factory=list)

    def shape(self) -> list[Any]:
        shape = dict.get(self.said, "shape")
        return list(shape) if isinstance(shape, tuple) else list(self.view.shape)

    def strides(self) -> list[Any]:
        strides = dict.get(self.said, "strides")
        if isinstance(strides, tuple):
            return list(strides)
        return [s * self.view.dtype.itemsize for s in self.view.strides]

    def empty(self) -> bool:
        return 0 in self.view.shape


class Producer:
    def __init__(self, case: Case) -> None:
        self.case = case

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.case.show() if self.case.show else self.case.said


def said_of(view: values.View) -> dict[str, Any]:
    strides = tuple(s * view.dtype.itemsize for s in view.strides)
    return {
        "shape": view.shape,
        "typestr": _typestr(view),
        "data": (view.address, False),
        "strides": None if view.contiguous else strides,
        "version": 3,
    }


# --- changes: each says what must come of it -----------------------------------------------------


def _missing(case: Case) -> None:
    name = case.rng.choice(("shape", "typestr", "data", "strides", "version"))
    if name == "strides":
        if case.wanted == RAISES:  # for its strides, maybe, which are gone now
            case.wanted = UNCHECKED
        case.view.strides = values.packed(case.view.shape)
    case.said.pop(name, None)
    case.expect({"strides": RIGHT, "version": EITHER}.get(name, RAISES))


def _odd_part(case: Case) -> None:
    """One entry is of a type that it cannot be."""
    name = case.rng.choice(("shape", "typestr", "data"))
    case.said[name] = case.rng.choice((None, 5, 2.5, b"<f4", object(), {}, [1, 2], (None,), ("a",)))
    case.expect(RAISES)


def _odd_strides(case: Case) -> None:
    odd = case.rng.choice((5, "ab", {}, 2.5, list(case.strides()), (*case.strides(), 1), (1,) * 70))
    case.said["strides"] = odd
    case.expect(EITHER)


def _odd_dict(case: Case) -> None:
    odd = case.rng.choice((None, 5, [], (1, 2), "dict", object(), {}, types.MappingProxyType({})))
    case.show = lambda: odd
    case.expect(RAISES)


def _junk_typestr(case: Case) -> None:
    kind = _typestr(case.view)
    junk = ("", "<", "|", "f4", "<f", "<4", "<f4x", "<f 4", "<f+4", "<f04", "<f-4", "<f4\0", "<f0",
            "<i3", "<f1", "<c4", "<b8", "<i99999999999999999999", "<i4294967300", "\ud800", "é",
            "<O8", "<V4", "<M8[s]", "<U4", kind + " ", kind + "0", kind + ".0")  # fmt: skip
    case.said["typestr"] = case.rng.choice(junk)
    case.expect(RAISES)


def _swapped(case: Case) -> None:
    kind = case.view.dtype
    case.said["typestr"] = kind.newbyteorder(">").str
    case.expect(RAISES if kind.itemsize > 1 else EITHER)


def _other_typestr(case: Case) -> None:
    """Elements that are read as others."""
    case.said["typestr"] = values.dtype_of(case.rng.choice(values.NAMES)).str
    case.expect(UNCHECKED)


def _typestr_class(case: Case) -> None:
    if "typestr" in case.said:
        case.said["typestr"] = type("Text", (str,), {})(case.said["typestr"])
        case.expect(EITHER)


def _negative_size(case: Case) -> None:
    shape = case.shape()
    if shape:
        shape[case.rng.randrange(len(shape))] = case.rng.choice((-1, -7, -(2**63)))
        case.said["shape"] = tuple(shape)
        case.expect(UNCHECKED if case.empty() else RAISES)


def _huge_size(case: Case) -> None:
    shape = case.shape()
    if len(shape) > 1:
        for at in case.rng.sample(range(len(shape)), 2):
            shape[at] = case.rng.choice((2**62, 2**63 - 1, 2**63, 2**64, 2**64 + 3, 2**200))
        case.said["shape"] = tuple(shape)
        case.expect(UNCHECKED if case.empty() else RAISES)


def _empty(case: Case) -> None:
    shape = case.shape()
    if shape:
        numbers = (0, 1, 5, 2**31, 2**62, 2**63 - 1)
        shape = [case.rng.choice(numbers) for _ in shape]
        shape[case.rng.randrange(len(shape))] = 0
        case.said["shape"] = tuple(shape)
        case.said["strides"] = None
        case.said["data"] = case.rng.choice(((0, False), (None, False), case.said.get("data")))
        case.view.shape, case.view.strides = (0,), (1,)
        case.expect(EITHER)


def _odd_size(case: Case) -> None:
    shape = case.shape()
    if shape:
        at = case.rng.randrange(len(shape))
        way = case.rng.randrange(4)
        if way == 0:
            shape[at] = case.rng.choice((2.0, "3", None, (1,), 1j, b"1", object()))
            case.expect(RAISES)
        elif way == 1 and shape[at] == 1:
            shape[at] = True
            case.expect(EITHER)
        elif isinstance(shape[at], int):
            kind = case.rng.choice((np.int64, np.uint16, lambda n: Index(n, lambda: None)))
            shape[at] = kind(min(max(shape[at], 0), 1000))
            case.expect(EITHER if 0 <= case.shape()[at] <= 1000 else UNCHECKED)
        case.said["shape"] = tuple(shape)


def _odd_stride(case: Case) -> None:
    strides = case.strides()
    if strides:
        at = case.rng.randrange(len(strides))
        strides[at] = case.rng.choice((2.0, "3", None, (1,), 1j, 2**63, -(2**64), 2**200))
        case.said["strides"] = tuple(strides)
        sized = at < len(case.view.shape) and case.view.shape[at] > 1
        case.expect(RAISES if sized and not case.empty() else UNCHECKED)


def _wrapping_stride(case: Case) -> None:
    """The byte offset of the last element does not fit into 63 bits."""
    strides = case.strides()
    size = case.view.dtype.itemsize
    longer = [at for at, n in enumerate(case.view.shape) if n > 2 and at < len(strides)]
    if longer and not case.empty():
        strides[case.rng.choice(longer)] = case.rng.choice((1, -1)) * (2**63 - size)
        case.said["strides"] = tuple(strides)
        case.expect(RAISES)


def _broken_stride(case: Case) -> None:
    """A stride that is no multiple of the element: not read, by any means as another one."""
    strides = case.strides()
    longer = [at for at, n in enumerate(case.view.shape) if n > 1 and at < len(strides)]
    if longer and case.view.dtype.itemsize > 1 and type(strides[longer[0]]) is int:
        strides[longer[0]] += 1
        case.said["strides"] = tuple(strides)
        case.expect(UNCHECKED if case.empty() else RAISES)


def _running_index(case: Case) -> None:
    """A size or a stride that runs code: it raises, clears the dict, or sums something itself."""
    name = case.rng.choice(("shape", "strides"))
    numbers = case.shape() if name == "shape" else case.strides()
    if not numbers or not isinstance(numbers[-1], int):
        return

    def clear() -> None:
        case.said.clear()
        case.junk += [bytes([65]) * (8 * n) for n in range(1, 60) for _ in range(5)]

    def nested() -> None:
        consumers.check_next(case.rng)

    run = case.rng.choice((case.mischief, clear, nested))
    at = case.rng.choice((0, -1))
    if not isinstance(numbers[at], int):
        return
    numbers[at] = Index(numbers[at], run)
    case.said[name] = tuple(numbers)
    case.expect(EITHER)


def _data(case: Case) -> None:
    odd = case.rng.choice((0, None, "5", 2.5, 2**64, 2**64 + 8, 2**200, -(2**64), -8, 2**64 - 1))
    case.said["data"] = (odd, False)
    case.expect(EITHER if case.empty() else RAISES)


def _data_form(case: Case) -> None:
    at = case.view.address
    forms = ((at,), (np.uint64(at), True), (at, 5, 6), [at, False], (Index(at, lambda: None), 0))
    case.said["data"] = case.rng.choice(forms)
    case.expect(EITHER)


def _stream(case: Case) -> None:
    good, odd = (None, 1, 2, 99999), (0, -1, 2**63, 2**64, 2**70, "1", 2.5, (), True, b"")
    case.said["stream"] = case.rng.choice((*good, *odd))
    case.expect(RIGHT if case.said["stream"] in good else EITHER)


def _mask(case: Case) -> None:
    case.said["mask"] = case.rng.choice((None, Producer(case), 5, np.ones(3)))
    case.expect(RIGHT if case.said["mask"] is None else RAISES)


def _version(case: Case) -> None:
    case.said["version"] = case.rng.choice((0, 1, 2, 4, -1, None, "3", 2**70))
    case.expect(EITHER)


def _raising(case: Case) -> None:
    case.show = case.mischief
    case.expect(UNCHECKED)


def _no_attribute(case: Case) -> None:
    def missing() -> Any:
        raise AttributeError("none today")

    case.show = missing
    case.expect(RAISES)


def _changing(case: Case) -> None:
    """The second time it shows something else: the sum must be one of the two."""
    other = values.view_of(case.rng)
    later = said_of(other)
    if other.name == "bfloat16":
        return
    shown = iter((case.said,))
    case.show = lambda: next(shown, later)
    case.totals.append((other.name, other.total()))
    case.expect(EITHER)


def _subclass(case: Case) -> None:
    class Liar(dict):  # type: ignore[type-arg]
        def __getitem__(self, key: str, default: object = None) -> Any:
            return default

        get = __getitem__

    case.said = Liar(case.said)
    case.expect(EITHER)


CHANGES = (_missing, _odd_part, _odd_strides, _odd_dict, _junk_typestr, _swapped, _other_typestr,
           _typestr_class, _negative_size, _huge_size, _empty, _odd_size, _odd_stride,
           _wrapping_stride, _broken_stride, _running_index, _data, _data_form, _stream, _mask,
           _version, _raising, _no_attribute, _changing, _subclass)  # fmt: skip


def _like_cupy(case: Case) -> object:
    """The same as CuPy's arrays show it: by attributes, the strides always there."""
    array = like_cupy(np.ones(1))
    said = dict(case.said)
    pointer = said.get("data", (0,))
    array.data = types.SimpleNamespace(
        ptr=pointer[0] if isinstance(pointer, tuple) and pointer else pointer,
        device_id=case.rng.choice((0, 0, 0, 0, 0, 1, -1, 2**31, "a", None)),
    )
    array.shape, array.strides = said.get("shape"), said.get("strides")
    array.dtype = types.SimpleNamespace(str=said.get("typestr"))
    bad = case.wanted == RAISES and "data" in said and not case.empty()
    case.wanted = RAISES if bad else UNCHECKED
    return array


def case(rng: Random) -> str:
    view = values.view_of(rng, rng.choice([n for n in values.NAMES if n != "bfloat16"]))
    notes.add(view.name)
    made = Case(rng, view, said_of(view))
    changes = rng.sample(CHANGES, rng.choice((0, 1, 1, 1, 2)))
    cupys = rng.random() < 0.15 and not {_mask, _odd_dict} & {*changes}
    for change in changes:
        notes.add(change.__name__.strip("_"))
        change(made)
    made.totals.insert(0, (view.name, view.total()))
    array = Producer(made)
    if cupys and not made.show:
        notes.add("as CuPy's")
        array = _like_cupy(made)
    used = consumers.consumer(rng)
    notes.add(used.name)
    return made.outcome(used, array, made.refusals)
