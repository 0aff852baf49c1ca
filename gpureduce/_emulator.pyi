"""The builds _emulator, _emulator_traced and _cuda have one interface: csrc/bindings/module.c."""

from collections.abc import Callable
from typing import Any, Literal, overload

import numpy as np

from gpureduce.core.results import SumResult

ONE: int
TWO: int
MANY: int
PARTIALS: int
FINISHES: int
COOPERATIVE: int
CLUSTER: int
ALONE: int
TICKET: int
DIGITS: int
UNORDERED: int
RING: int
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

def sum(
    array: np.ndarray[Any, Any],
    load: int,
    acc: int,
    strategy: int,
    block: int,
    grid: int,
    finish: int,
    device: int,
    order: int,
    seed: int,
    timed: bool,
    /,
) -> tuple[bytes, float, float, float, float, int, int, int, int, int]: ...

_Resolve = Callable[[str, int, int], tuple[int, bool, int, int]]

def sum_gpu(
    array: object,
    resolve: _Resolve | None,
    strategy: int,
    block: int,
    grid: int,
    finish: int,
    stream: int,
    timed: bool,
    /,
) -> Any: ...
def quick_sum_sent(
    array: np.ndarray[Any, Any], strategy: int, device: int, /
) -> SumResult | None: ...
def quick_sum_gpu(array: object, strategy: int, stream: int, /) -> Any: ...
def exact_gpu(array: object, resolve: _Resolve, stream: int, /) -> tuple[bytes, ...] | None: ...
def write_pinned(to: np.ndarray[Any, Any], array: np.ndarray[Any, Any], /) -> None: ...
def set_choices(device: int, rows: list[tuple[int, int, int, int, int, int]], /) -> None: ...
def get_choices(device: int, /) -> list[tuple[int, int, int, int, int, int]]: ...
def free_scratch() -> None: ...
def cpu_sum(
    array: np.ndarray[Any, Any], load: int, acc: int, components: int, threads: int, /
) -> tuple[bytes, float]: ...
@overload
def quick_sum(
    array: np.ndarray[Any, Any], exactly: bool, timed: Literal[False], /
) -> SumResult | None: ...
@overload
def quick_sum(
    array: np.ndarray[Any, Any], exactly: bool, timed: Literal[True], /
) -> tuple[Any, float] | None: ...
def cpu_error_factor(n: int, load: int, acc: int, /) -> float: ...
def sum_samples(
    integrand: int,
    start: float,
    end: float,
    n: int,
    acc: int,
    strategy: int,
    block: int,
    grid: int,
    finish: int,
    device: int,
    order: int,
    seed: int,
    repeats: int,
    /,
) -> Any: ...
def cpu_sum_samples(
    integrand: int, start: float, end: float, n: int, acc: int, threads: int, /
) -> tuple[bytes, float]: ...
def integrands() -> list[tuple[str, str, float, float, str, str]]: ...
def takes_samples(strategy: int, /) -> bool: ...
def strategies() -> list[tuple[str, str, str, str, str, int, int]]: ...
def dtypes() -> list[tuple[str, int, int, str]]: ...
def devices() -> list[dict[str, Any]]: ...
def build() -> dict[str, Any]: ...
def environment(name: str, /) -> str | None: ...
def memory_limit(token: int, bytes: int, /) -> None: ...
def live_bytes() -> int: ...
