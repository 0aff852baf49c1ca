"""Element types, accumulators and results, and the conversions between them."""

from __future__ import annotations

import contextvars
import functools
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gpureduce import _host
from gpureduce.core.checks import no_such, shown
from gpureduce.core.registry import COMPLEX, DTYPES
from gpureduce.lazy_import import load_other

Array = np.ndarray[Any, Any]
_KNOWN = ", ".join((*DTYPES, *COMPLEX))
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
    """How the elements of one dtype are added up to a sum of another.

    Elements are first cast to `cast`, if it is not None, as numpy.sum does. They are then read as
    `load` and added up in `acc`, and the sum is converted to `result`. For complex numbers, `load`
    and `acc` are those of the real and imaginary parts.
    """

    cast: np.dtype[Any] | None
    load: int
    acc: int
    result: np.dtype[Any]

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
    return TypeError(f"arrays of dtype {name} cannot be summed; there are {_KNOWN}")


def named(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Converts `dtype` to a NumPy dtype. NumPy knows bfloat16 once ml_dtypes is imported."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        try:
            ml_dtypes = load_other("ml_dtypes")
        except ImportError as error:
            raise TypeError(
                "NumPy has no bfloat16 without ml_dtypes: pip install ml_dtypes"
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


def rounded_later(conversion: Conversion) -> Conversion:
    """The conversion for one of several sums that are added before they are rounded."""
    if conversion.result.itemsize > 2 or conversion.result.kind in "iu":
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
    return DTYPES[part_of(dtype).name].load


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
        raise TypeError(f"an exact sum is rounded to a float or complex dtype, not {found}")
    return found


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Whether it is the bfloat16 of ml_dtypes, in either byte order."""
    return dtype.type is getattr(sys.modules.get("ml_dtypes"), "bfloat16", None)


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


def _kind(dtype: np.dtype[Any]) -> str:
    """NumPy's kind letter, with bfloat16 as "f"."""
    return "f" if dtype.name == "bfloat16" else dtype.kind


def _known(dtype: np.dtype[Any]) -> bool:
    name = number_name(dtype)
    return name in DTYPES or name in COMPLEX


def _default_result(source: np.dtype[Any]) -> np.dtype[Any]:
    if source.name in COMPLEX or source.name == "bfloat16":
        return source.newbyteorder("=")
    return np.dtype(DTYPES[source.name].result)


def convert(
    source: np.dtype[Any], wanted: npt.DTypeLike | None, pair: tuple[int, int] | None = None
) -> Conversion:
    """The conversion from elements of `source` to a sum of `wanted`, by default NumPy's choice.

    `pair` are the only types of a user's kernel: if these elements can be added up so, they are.
    """
    found = _convert(source, None if wanted is None else named(wanted))
    if pair is None or pair == (found.load, found.acc) or load_of(source) != pair[0]:
        return found
    own = number_of(pair[1])
    if own.kind == "u" and source.kind == "i":
        own = np.dtype(f"i{own.itemsize}")
    result = own if wanted is None else found.result
    low_bits = own.kind in "iu" and result.kind in "iu" and result.itemsize <= own.itemsize
    return Conversion(None, *pair, result) if low_bits or result == own else found


def in_itself(source: np.dtype[Any], pair: tuple[int, int] | None) -> np.dtype[Any] | None:
    """The dtype of the elements if a kernel adds them up in it, as in the lectures; else None."""
    if source.name not in ("int32", "uint32", "float32", "float64"):
        return None
    acc = source if pair is None else number_of(pair[1])
    same = acc.itemsize == source.itemsize and (acc.kind == "f") == (source.kind == "f")
    return source if same else None


@functools.lru_cache(256)  # NumPy takes microseconds to build a dtype's name, each time
def _convert(source: np.dtype[Any], wanted: np.dtype[Any] | None) -> Conversion:
    if not _known(source):
        raise no_sum_of(str(source))
    result = _default_result(source) if wanted is None else wanted.newbyteorder("=")
    if not _known(result) or result.kind == "b":
        raise TypeError(f"dtype={result} cannot hold a sum")
    if "biufc".index(_kind(result)) < "biufc".index(_kind(source)) and _kind(result) not in "iu":
        raise TypeError(
            f"dtype={result} would lose part of {name_of(source)}; cast it first if that is meant"
        )
    if _kind(result) in "iu" and _kind(source) in "fc":
        raise TypeError(
            f"dtype={result} would lose part of {name_of(source)}; cast it first if that is meant"
        )

    if result.kind in "iu":
        return _to_integers(source, result)
    part = result if result.kind != "c" else np.dtype(f"f{result.itemsize // 2}")
    parts = source if source.kind != "c" else np.dtype(f"f{source.itemsize // 2}")
    acc = DTYPES[part.name].acc
    if _read_as_is(parts, part, acc):
        return Conversion(None, DTYPES[parts.name].load, acc, result)
    return Conversion(part, DTYPES[part.name].load, acc, result)


def _to_integers(source: np.dtype[Any], result: np.dtype[Any]) -> Conversion:
    """The conversion to an integer sum. Sums wrap, so a wider accumulator has the same low bits."""
    load = DTYPES[source.name].load
    if result.itemsize == 4 and load in (_host.LOAD_I32, _host.LOAD_U32):
        return Conversion(None, _host.LOAD_U32, _host.ACC_U32, result)
    return Conversion(None, load, _host.ACC_U64, result)


def _read_as_is(source: np.dtype[Any], result: np.dtype[Any], acc: int) -> bool:
    """Whether a kernel reads `source` without a cast: it widens exactly, as NumPy's cast would."""
    if source.kind in "biu":
        return False
    if source.newbyteorder("=") == result:
        return True
    load = DTYPES[source.name].load
    if acc == _host.ACC_F64:
        return load == _host.LOAD_F32
    return result == np.float32 and load in (_host.LOAD_F16, _host.LOAD_BF16)
