"""Sums by the processors, exact accumulators and the registry: csrc/bindings/host."""

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Generic, Literal, TypeVar, final, overload

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from gpureduce.core.results import Timing

COMPILER: str
ONE: int
TWO: int
FOUR: int
EIGHT: int
SIXTEEN: int
THIRTY_TWO: int
MANY: int
PARTIALS: int
FINISHES: int
COOPERATIVE: int
CLUSTER: int
ALONE: int
TICKET: int
OVERLAPS: int
DIGITS: int
UNORDERED: int
RING: int
ROWS: int
COLUMNS: int
ZEROED: int
SHARED_THREADS: int
SHARED_TWICE: int
SHARED_WARPS: int
WORK_ELEMENTS: int
WORK_BLOCKS: int
BLOCK_TEMPLATE: int
MARKED_BLOCKS: int
CLUSTER_BLOCKS: int
LOAD_F16: int
LOAD_BF16: int
LOAD_F32: int
LOAD_F64: int
LOAD_U32: int
ACC_U32: int
ACC_U64: int
ACC_F32: int
ACC_F64: int
ON_PROCESSORS: int
SENT_TO_GPU: int
ON_GPU: int
ALL: int
AXES: int
OFFSETS: int
IDS: int
FINISH_BATCH: int

_T = TypeVar("_T")
_Array = np.ndarray[Any, Any]
_Terms = tuple[int, int, _Array, _Array | None]

class ContextValue(Generic[_T]):
    def __new__(cls, variable: ContextVar[_T], value: _T, /) -> ContextValue[_T]: ...
    def __enter__(self) -> _T: ...
    def __exit__(self, *args: object) -> None: ...

@final
class SumResult(NDArrayOperatorsMixin):
    __match_args__ = ("value", "timing")
    def __new__(cls, value: Any, timing: Timing | None) -> SumResult: ...
    @property
    def value(self) -> Any: ...
    @property
    def timing(self) -> Timing: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: Literal[0, -2], /) -> Any: ...
    @overload
    def __getitem__(self, key: Literal[1, -1], /) -> Timing: ...
    @overload
    def __getitem__(self, key: int, /) -> Any: ...
    # The value's:
    def __getattr__(self, name: str, /) -> Any: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]: ...
    def __array_ufunc__(self, ufunc: Any, method: str, /, *inputs: Any, **options: Any) -> Any: ...
    def __bool__(self) -> bool: ...
    def __complex__(self) -> complex: ...
    def __float__(self) -> float: ...
    def __index__(self) -> int: ...
    def __int__(self) -> int: ...
    def __trunc__(self) -> int: ...
    def __round__(self, ndigits: Any = None, /) -> Any: ...
    def __contains__(self, item: object, /) -> bool: ...
    def __pow__(self, other: Any, modulus: Any = None, /) -> Any: ...
    def __rpow__(self, other: Any, modulus: Any = None, /) -> Any: ...

class Exact:
    def __new__(cls, load: int, components: int, /) -> Exact: ...
    @property
    def count(self) -> int: ...
    @property
    def load(self) -> int: ...
    @property
    def components(self) -> int: ...
    def add(
        self, array: _Array, load: int, components: int, counts: bool, threads: int, /
    ) -> float: ...
    def add_state(self, state: bytes, component: int, counts: bool, /) -> None: ...
    @property
    def flags(self) -> int: ...
    def merge(self, other: Exact, negative: bool = ..., /) -> None: ...
    def copy(self) -> Exact: ...
    def round(self, load: int, /) -> bytes: ...
    def to_bytes(self) -> bytes: ...
    @classmethod
    def from_bytes(cls, data: bytes, /) -> Exact: ...
    def to_digits(self) -> bytes: ...
    @classmethod
    def from_digits(cls, words: bytes, /) -> Exact: ...

def sum_array(
    array: _Array, exactly: bool, common: Callable[[np.dtype[Any], bool], dict[str, Any]] | None, /
) -> SumResult | None: ...
def unrounded_axes(array: _Array, axes: tuple[int, ...], out: _Array, /) -> bool: ...
@overload
def sum_axis(
    array: _Array,
    axis: Any,
    keepdims: bool,
    exactly: bool,
    common: Callable[[np.dtype[Any], bool], dict[str, Any]] | None,
    /,
) -> SumResult | None: ...
@overload
def sum_axis(
    array: _Array,
    axis: tuple[int, ...] | None,
    keepdims: bool,
    exactly: bool,
    common: None,
    details: tuple[Any, ...],
    /,
) -> tuple[Any, float]: ...
def finish(
    kind: int,
    root: bool,
    parts: int,
    first: tuple[_Terms, ...],
    second: tuple[_Terms, ...],
    axes: tuple[int, ...],
    n: _Array,
    mean: _Array | None,
    ddof: float,
    load: int,
    out: _Array,
    /,
) -> None: ...
def rolling(
    kind: int,
    root: bool,
    divides: bool,
    ddof: float,
    array: _Array,
    starts: _Array | None,
    ends: _Array | None,
    size: int,
    after: int,
    least: int,
    load: int,
    out: _Array,
    /,
) -> None: ...
def running_sums(
    array: _Array,
    axis: int,
    offsets: _Array | None,
    load: int,
    target: int,
    out: _Array,
    before: _Array | None = None,
    /,
) -> None: ...
def finish_sums(
    kind: int,
    root: bool,
    parts: int,
    first: int,
    ddof: float,
    second: int,
    sums: _Array,
    n: _Array,
    load: int,
    out: _Array,
    unknown: _Array,
    /,
) -> int: ...
def finish_segments(
    kind: int,
    root: bool,
    parts: int,
    ddof: float,
    values: _Array,
    ids: _Array | None,
    offsets: _Array | None,
    segments: int,
    load: int,
    counts: _Array,
    target: int,
    out: _Array,
    unknown: _Array,
    skips: bool,
    /,
) -> int: ...
def finish_plainly(
    array: object,
    axis: object,
    keepdims: object,
    how: tuple[int, bool, int, int, bool],
    ddof: object,
    other: object = ...,
    /,
) -> Any: ...
def sum_levels(matrix: _Array, in_rows: bool, has_x: bool, /) -> _Array: ...
def sum_digits(
    array: _Array,
    rows: int,
    load: int,
    components: int,
    words: _Array,
    other: _Array | None = ...,
    /,
) -> None: ...
def finish_digits(
    words: _Array, finish: int, components: int, ddof: float, load: int, out: _Array, /
) -> None: ...
def round_digits(words: _Array, load: int, components: int, out: _Array, /) -> None: ...
def sum_segments(
    values: _Array,
    ids: _Array | None,
    offsets: _Array | None,
    out: _Array,
    source: int,
    wanted: int,
    initial: int | tuple[tuple[float, ...], ...],
    skips: bool = ...,
    /,
) -> tuple[float, int]: ...
def number_groups(
    keys: _Array, least: int, ids: _Array, counts: _Array, first: _Array, numbers: _Array, /
) -> int: ...
def are_bools(array: _Array, /) -> bool: ...
def cpu_error_factor(n: int, load: int, acc: int, /) -> float: ...
def cpu_sum_samples(
    integrand: int, start: float, end: float, n: int, acc: int, threads: int, /
) -> tuple[bytes, float]: ...
def strategies() -> list[tuple[str, str, str, str, str, int, int]]: ...
def dtypes() -> list[tuple[str, int, int, str]]: ...
def how(
    source: int, wanted: int, exactly: bool, place: int, groups: int, /
) -> tuple[int, int, int, bool, int, int, bool]: ...
def integrands() -> list[tuple[str, str, float, float, str, str]]: ...
def environment(name: str, /) -> str | None: ...
