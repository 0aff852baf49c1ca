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
_Terms = tuple[int, int, np.ndarray[Any, Any], np.ndarray[Any, Any] | None]

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
        self,
        array: np.ndarray[Any, Any],
        load: int,
        components: int,
        counts: bool,
        threads: int,
        /,
    ) -> float: ...
    def add_state(self, state: bytes, component: int, counts: bool, /) -> None: ...
    @property
    def flags(self) -> int: ...
    def merge(self, other: Exact, negative: bool = ..., /) -> None: ...
    def add_products(
        self,
        x: np.ndarray[Any, Any],
        y: np.ndarray[Any, Any],
        low: Exact,
        high: Exact,
        counts: bool,
        /,
    ) -> None: ...
    def variance(
        self, low: Exact, squares: Exact, high: Exact, root: bool, ddof: float, load: int, /
    ) -> bytes: ...
    def copy(self) -> Exact: ...
    def round(self, load: int, /) -> bytes: ...
    def to_bytes(self) -> bytes: ...
    @classmethod
    def from_bytes(cls, data: bytes, /) -> Exact: ...
    def to_digits(self) -> bytes: ...
    @classmethod
    def from_digits(cls, words: bytes, /) -> Exact: ...

def sum_array(
    array: np.ndarray[Any, Any],
    exactly: bool,
    common: Callable[[np.dtype[Any], bool], dict[str, Any]] | None,
    /,
) -> SumResult | None: ...
@overload
def sum_axis(
    array: np.ndarray[Any, Any],
    axis: Any,
    keepdims: bool,
    exactly: bool,
    common: Callable[[np.dtype[Any], bool], dict[str, Any]] | None,
    /,
) -> SumResult | None: ...
@overload
def sum_axis(
    array: np.ndarray[Any, Any],
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
    n: np.ndarray[Any, Any],
    mean: np.ndarray[Any, Any] | None,
    ddof: float,
    load: int,
    out: np.ndarray[Any, Any],
    /,
) -> None: ...
def rolling(
    kind: int,
    root: bool,
    divides: bool,
    ddof: float,
    array: np.ndarray[Any, Any],
    starts: np.ndarray[Any, Any] | None,
    ends: np.ndarray[Any, Any] | None,
    size: int,
    after: int,
    counts: np.ndarray[Any, Any] | None,
    least: int,
    load: int,
    out: np.ndarray[Any, Any],
    /,
) -> None: ...
def running_sums(
    array: np.ndarray[Any, Any],
    axis: int,
    offsets: np.ndarray[Any, Any] | None,
    load: int,
    target: int,
    out: np.ndarray[Any, Any],
    before: np.ndarray[Any, Any] | None = None,
    /,
) -> None: ...
def finish_sums(
    kind: int,
    root: bool,
    parts: int,
    first: int,
    ddof: float,
    second: int,
    sums: np.ndarray[Any, Any],
    n: np.ndarray[Any, Any],
    load: int,
    out: np.ndarray[Any, Any],
    unknown: np.ndarray[Any, Any],
    /,
) -> int: ...
def unrounded_segments(
    values: np.ndarray[Any, Any],
    ids: np.ndarray[Any, Any] | None,
    offsets: np.ndarray[Any, Any] | None,
    segments: int,
    load: int,
    term: int,
    out: np.ndarray[Any, Any],
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
def sum_digits(
    array: np.ndarray[Any, Any],
    rows: int,
    load: int,
    components: int,
    words: np.ndarray[Any, Any],
    other: np.ndarray[Any, Any] | None = ...,
    /,
) -> None: ...
def finish_digits(
    words: np.ndarray[Any, Any],
    finish: int,
    components: int,
    ddof: float,
    load: int,
    out: np.ndarray[Any, Any],
    /,
) -> None: ...
def round_digits(
    words: np.ndarray[Any, Any], load: int, components: int, out: np.ndarray[Any, Any], /
) -> None: ...
def sum_segments(
    values: np.ndarray[Any, Any],
    ids: np.ndarray[Any, Any] | None,
    offsets: np.ndarray[Any, Any] | None,
    out: np.ndarray[Any, Any],
    source: int,
    wanted: int,
    initial: int | tuple[tuple[float, ...], ...],
    /,
) -> tuple[float, int]: ...
def are_bools(array: np.ndarray[Any, Any], /) -> bool: ...
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
