"""Element types, accumulators and results, and the conversions between them."""

from __future__ import annotations

import contextvars
import functools
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from gpureduce import _host
from gpureduce.core.checks import no_such, shown
from gpureduce.core.registry import COMPLEX, DTYPES, NUMBERS
from gpureduce.lazy_import import load_other

Array = np.ndarray[Any, Any]
_KNOWN = ", ".join(NUMBERS)
_T = TypeVar("_T")


def _ignored() -> list[tuple[contextvars.ContextVar[Any], Any]]:
    """NumPy's context variable of error settings, and its value for settings of "ignore"."""
    before = contextvars.copy_context()
    after = before.copy()
    after.run(np.seterr, all="ignore")
    return [(variable, x) for variable, x in after.items() if before.get(variable) is not x]


_IGNORED = _ignored()


def quietly(function: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
    """Calls a function without NumPy's warnings and errors of overflow and nan.

    `np.errstate` is Python code: if a signal handler raises inside it, NumPy's settings stay
    changed. Here they change in a copy of the context, which is dropped whatever is raised.
    """
    context = contextvars.copy_context()
    for variable, value in _IGNORED:
        context.run(variable.set, value)
    return context.run(function, *arguments, **options)


_NUMBERS_OF: dict[int, np.dtype[Any]] = {
    _host.ACC_U32: np.dtype(np.uint32),
    _host.ACC_U64: np.dtype(np.uint64),
    _host.ACC_F32: np.dtype(np.float32),
    _host.ACC_F64: np.dtype(np.float64),
}


def number_of(acc: int) -> np.dtype[Any]:
    """The NumPy dtype of an accumulator."""
    return _NUMBERS_OF[acc]


@dataclass(frozen=True)
class Conversion:
    """How the elements of one dtype are added up to a sum of another: csrc/shared/how.h.

    Elements are first converted to `elements`, if it is not None, as numpy.sum does. With `halves`,
    each integer becomes two floats. Then they are read as `load` and added up in `acc`. The sum is
    converted to `result`. For complex numbers, `load` and `acc` are those of the real and imaginary
    parts. With `exactly`, the sum is rounded once.
    """

    elements: np.dtype[Any] | None
    load: int
    acc: int
    result: np.dtype[Any]
    halves: bool = False
    exactly: bool = False

    @property
    def cast(self) -> np.dtype[Any] | None:
        """The dtype that elements, or their parts, are cast to."""
        return None if self.elements is None else part_of(self.elements)

    @property
    def is_complex(self) -> bool:
        """Whether an element is a pair of floats."""
        return self.result.kind == "c"

    def total(self, bits: bytes) -> Array:
        """The accumulator at the start of `bits`, which the engine pads."""
        return np.frombuffer(bits, number_of(self.acc), count=1)

    def value(self, bits: bytes) -> Any:
        """The accumulator's bits as a scalar of the result's dtype, or of its part if complex."""
        total = self.total(bits)
        if self.is_complex or total.dtype == self.result:
            return total[0]
        return quietly(total.astype, self.result)[0]


def no_sum_of(name: str) -> TypeError:
    return TypeError(f"arrays of dtype {name} cannot be summed; supported are {_KNOWN}")


def named(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Converts `dtype` to a NumPy dtype. NumPy knows bfloat16 once ml_dtypes is imported."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        try:
            ml_dtypes = load_other("ml_dtypes")
        except ImportError as error:
            raise TypeError(
                "NumPy has bfloat16 only with ml_dtypes: pip install ml_dtypes"
            ) from error

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    try:
        return np.dtype(dtype)
    except (TypeError, ValueError, OverflowError, SyntaxError):  # NumPy parses some as Python
        if isinstance(dtype, str):
            raise TypeError(no_such("dtype", dtype, _KNOWN.split(", "))) from None
        raise TypeError(f"dtype must be a NumPy dtype or its name, not {shown(dtype)}") from None


def is_here(name: str) -> bool:
    """Whether the dtype is available. bfloat16 is, if ml_dtypes is installed."""
    return name != "bfloat16" or importlib.util.find_spec("ml_dtypes") is not None


def part_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of the real part."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def is_half(dtype: np.dtype[Any]) -> bool:
    """Whether it is a float of 16 bits."""
    return dtype.itemsize == 2 and dtype.kind not in "iu"


def rounded_later(conversion: Conversion) -> Conversion:
    """The conversion for one of several sums that are added before they are rounded."""
    if not is_half(conversion.result):
        return conversion
    return replace(conversion, result=number_of(conversion.acc))


def sum_in_order(values: Sequence[Any], result: np.dtype[Any]) -> Any:
    """Adds scalars one after the other, as sums of `rounded_later`; integers wrap around."""
    total = values[0]
    for value in values[1:]:
        total = quietly(np.add, total, value)
    return total if total.dtype == result else quietly(total.astype, result)


@functools.lru_cache(64)
def load_of(dtype: np.dtype[Any]) -> int:
    """The load type by which kernels read elements of `dtype`, or their parts if complex."""
    return DTYPES[part_of(dtype).name]


@functools.lru_cache(256)
def line_of(dtype: np.dtype[Any]) -> int:
    """The line of a dtype of numbers in dtypes.def, for C."""
    return NUMBERS[number_name(dtype) or ""]


def is_exact(result: np.dtype[Any]) -> bool:
    """Whether sums in dtype `result` need `exact`: those of integers are never rounded."""
    return result.kind not in "iu"


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether it is a float or complex dtype that sums can have."""
    name = number_name(dtype)
    return name in COMPLEX or (name in DTYPES and "float" in name)


def rounded_to(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The dtype that an exact sum is rounded to. Raises TypeError unless it is such a dtype."""
    found = named(dtype).newbyteorder("=")
    if not is_float(found):
        raise TypeError(f"dtype of an exact sum must be a float or complex dtype, not {found}")
    return found


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Whether it is the bfloat16 of ml_dtypes, in either byte order."""
    return dtype.type is getattr(sys.modules.get("ml_dtypes"), "bfloat16", None)


@functools.lru_cache(256)
def number_name(dtype: np.dtype[Any]) -> str | None:
    """The name of a dtype of numbers, without its byte order; None for other dtypes.

    NumPy makes names out of those of classes: a subclass of np.void can be called float32.
    """
    user_defined = dtype.isbuiltin == 2
    is_number = is_bfloat16(dtype) if user_defined else dtype.kind in "biufc"
    return dtype.name if is_number else None


@functools.lru_cache(256)
def name_of(dtype: np.dtype[Any]) -> str:
    """The name of a dtype, with its byte order. Cached, because NumPy builds it each time."""
    if is_bfloat16(dtype):  # to NumPy, a swapped one is ">V2"
        return "bfloat16" if dtype.isnative else ">bfloat16"
    return str(dtype)


def convert(
    source: np.dtype[Any],
    wanted: npt.DTypeLike | None,
    exactly: bool = False,
    place: int = _host.ON_PROCESSORS,
    groups: int = _host.ALL,
) -> Conversion:
    """The conversion from elements of `source` to a sum of `wanted`, by default NumPy's choice."""
    return _convert(source, None if wanted is None else named(wanted), exactly, place, groups)


def convert_for(
    source: np.dtype[Any], wanted: npt.DTypeLike | None, pair: tuple[int, int] | None
) -> Conversion:
    """The conversion for a kernel. `pair` are the only types of a user's kernel, or None.

    If these elements can be added up in the pair's types, they are.
    """
    found = convert(source, wanted)
    if pair is None or pair == (found.load, found.acc) or load_of(source) != pair[0]:
        return found
    own = number_of(pair[1])
    if own.kind == "u" and source.kind == "i":
        own = np.dtype(f"i{own.itemsize}")
    result = own if wanted is None else found.result
    low_bits = own.kind in "iu" and result.kind in "iu" and result.itemsize <= own.itemsize
    return Conversion(None, *pair, result) if low_bits or result == own else found


def in_itself(source: np.dtype[Any], pair: tuple[int, int] | None) -> np.dtype[Any] | None:
    """The elements' dtype if a kernel accumulates in it, as in the lectures; else None."""
    if source.name not in ("int32", "uint32", "float32", "float64"):
        return None
    acc = source if pair is None else number_of(pair[1])
    same = acc.itemsize == source.itemsize and (acc.kind == "f") == (source.kind == "f")
    return source if same else None


@functools.lru_cache(1024)  # NumPy takes microseconds to build a dtype's name, each time
def _convert(
    source: np.dtype[Any], wanted: np.dtype[Any] | None, exactly: bool, place: int, groups: int
) -> Conversion:
    number, to = NUMBERS.get(number_name(source) or ""), -1
    if number is None:
        raise no_sum_of(str(source))
    if wanted is not None:
        wanted = wanted.newbyteorder("=")
        to = NUMBERS.get(number_name(wanted) or "", NUMBERS["bool"])  # refused as bool is
    found = _host.how(number, to, exactly, place, groups)
    refusal, result, elements, halves, load, acc, rounds_once = found
    if refusal:
        raise refused(refusal, name_of(source), wanted)
    of = {-1: None, result: wanted or named(_NAMES[result])}
    made = of[elements] if elements in of else named(_NAMES[elements])
    return Conversion(made, load, acc, cast(Any, of[result]), halves, rounds_once)


def refused(refusal: int, source: str, wanted: np.dtype[Any] | None) -> TypeError:
    """The error for a gr_refusal other than 0, for sums of elements called `source`."""
    part = None if wanted is None else part_of(wanted)
    return TypeError(_REFUSALS[refusal - 2].format(result=wanted, part=part, source=source))


_NAMES = tuple(NUMBERS)
_REFUSALS = (
    "dtype={result} cannot hold a sum",
    "dtype={result} would lose part of {source}: convert the array first if that is meant",
    "real arrays on a GPU cannot be summed as complex: use a real dtype",
    "kernels cannot sum 64-bit integers exactly as floats: leave dtype out, or, in host memory, "
    "use the CPU",
    "sums of arrays on a GPU do not convert elements to {part}: convert the array first",
    "segment sums on a GPU do not convert integers to {result}: convert the array first",
)  # of gr_refusal
