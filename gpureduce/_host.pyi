"""Sums by the processors, exact accumulators and the registry: csrc/bindings/host."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Generic, TypeVar, overload

import numpy as np

from gpureduce.core.results import SumResult

COMPILER: str
ONE: int
TWO: int
FOUR: int
EIGHT: int
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
LOAD_I32: int
LOAD_U32: int
ACC_U32: int
ACC_U64: int
ACC_F32: int
ACC_F64: int

_T = TypeVar("_T")

class ContextValue(Generic[_T]):
    def __new__(cls, variable: ContextVar[_T], value: _T, /) -> ContextValue[_T]: ...
    def __enter__(self) -> _T: ...
    def __exit__(self, *args: object) -> None: ...

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
    def merge(self, other: Exact, /) -> None: ...
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
    axis: tuple[int, ...],
    keepdims: bool,
    exactly: bool,
    common: None,
    details: tuple[Any, ...],
    /,
) -> tuple[Any, float]: ...
def sum_digits(
    array: np.ndarray[Any, Any],
    rows: int,
    load: int,
    components: int,
    words: np.ndarray[Any, Any],
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
    layout: tuple[int, int, bool, int, int, bool],
    initial: int | tuple[tuple[float, ...], ...],
    /,
) -> tuple[float, int]: ...
def cpu_sum(
    array: np.ndarray[Any, Any], load: int, acc: int, components: int, threads: int, /
) -> tuple[bytes, float]: ...
def cpu_error_factor(n: int, load: int, acc: int, /) -> float: ...
def cpu_sum_samples(
    integrand: int, start: float, end: float, n: int, acc: int, threads: int, /
) -> tuple[bytes, float]: ...
def strategies() -> list[tuple[str, str, str, str, str, int, int]]: ...
def dtypes() -> list[tuple[str, int, int, str]]: ...
def integrands() -> list[tuple[str, str, float, float, str, str]]: ...
def environment(name: str, /) -> str | None: ...
