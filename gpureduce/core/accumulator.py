"""`gpureduce.Accumulator`: an exact sum that grows piece by piece, anywhere."""

from __future__ import annotations

import os
import threading
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from gpureduce import _host
from gpureduce.core import arrays, devices, digits, dtypes, exact, exact_words, gpu_arrays
from gpureduce.core.checks import no_stream, whole
from gpureduce.core.dtypes import Array
from gpureduce.core.registry import COMPLEX, DTYPES

_FLOATS = [name for name in DTYPES if "float" in name]
_NAME_OF = {DTYPES[name]: name for name in _FLOATS}


_VALUES = (np.nan, np.inf, -np.inf)
_NONE: Any = np.zeros((2, len(_VALUES)), np.int64)  # counts of _VALUES in real and imaginary parts
_LOCK = threading.RLock()  # guards sums with infinities or nans


def _renew_lock() -> None:
    """Makes a new lock in a child process: a thread of the parent may have held the old one."""
    global _LOCK
    _LOCK = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def _summed(dtype: np.dtype[Any], host: Array) -> tuple[_host.Exact, Any]:
    """The sum of the finite elements, and the counts of infinities and nans."""
    total = exact.new(dtype)
    exact.feed(total, host)
    if not total.flags:
        return total, _NONE
    counts, finite = np.zeros_like(_NONE), host.copy()
    for i, part in enumerate((finite.real, finite.imag) if host.dtype.kind == "c" else (finite,)):
        is_inf, is_negative = dtypes.quietly(np.isinf, part), np.signbit(part)
        each = dtypes.quietly(np.isnan, part), is_inf & ~is_negative, is_inf & is_negative
        counts[i] = [np.count_nonzero(one) for one in each]
        part[~dtypes.quietly(np.isfinite, part)] = 0
    total = exact.new(dtype)
    exact.feed(total, finite)
    return total, counts


def _restored(data: bytes, specials: list[list[int]]) -> Accumulator:
    """Unpickles an accumulator that has infinities or nans."""
    made = Accumulator.from_bytes(data)
    made._specials = np.array(specials, np.int64).reshape(_NONE.shape)
    return made


class Accumulator:
    """The exact sum of all elements added so far, and their count.

    Equal elements give equal values and equal bytes, whatever the pieces, their order, and the
    processes and devices that added them up. Nothing is rounded until `value` is called. It rounds
    like strategy ``exact``: see `gpureduce.sum` for nan, inf, overflow, subnormals and zeros.

    Parameters
    ----------
    dtype
        The dtype that `value` rounds to: float16, bfloat16, float32, float64, complex64 or
        complex128. Arrays of any other real dtype can be added, too, without rounding. Complex
        arrays can be added only if `dtype` is complex.

    Examples
    --------
    >>> import gpureduce, numpy as np, pickle
    >>> total = gpureduce.Accumulator("float32")
    >>> total += np.full(10, 0.1, np.float32)
    >>> other = gpureduce.Accumulator("float32").add(np.ones(3, np.float32))
    >>> both = total + pickle.loads(pickle.dumps(other))
    >>> float(both.value()), both.count
    (4.0, 13)
    """

    __slots__ = ("_dtype", "_specials", "_total")

    def __init__(self, dtype: npt.DTypeLike = "float64") -> None:
        named = dtypes.named(dtype).newbyteorder("=")
        if not dtypes.is_float(named):
            raise TypeError(
                f"an accumulator's dtype is one of {', '.join((*_FLOATS, *COMPLEX))}, not {named}; "
                "sums of integers are exact without one: use numpy.sum"
            )
        self._dtype = named
        self._total = exact.new(named)
        self._specials = _NONE

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype that `value` rounds to."""
        return self._dtype

    @property
    def count(self) -> int:
        """The number of elements added."""
        return self._total.count

    def add(
        self, array: npt.ArrayLike, stream: object = None, device: str | None = None
    ) -> Accumulator:
        """Add all elements of an array, and return this accumulator.

        An array on a GPU is added up there, on its producer's stream or on `stream`.
        `device="emulator"` reads such an array as one of the emulator. An array in host memory is
        added up by the processors, whatever `device` says.
        """
        if isinstance(array, Accumulator):
            raise TypeError("add takes an array: to add another accumulator, write acc += other")
        if isinstance(array, np.ndarray):
            devices.check_device(device)
        elif self._add_on_gpu(array, stream, device):
            return self
        no_stream(stream)
        host = arrays.as_array(array)
        dtypes.convert(host.dtype, None)  # raises if the dtype cannot be summed
        self._check(host.dtype.kind)
        # A signal handler may raise meanwhile: all of the array is added, or nothing.
        self._take(*_summed(self._dtype, host))
        return self

    def subtract(
        self,
        array: Accumulator | npt.ArrayLike,
        stream: object = None,
        device: str | None = None,
    ) -> Accumulator:
        """Take the elements of an array away, which were added before; ``acc -= array``, too.

        Nothing is left of them, and `count` goes down. Infinities and nans are counted, so they
        can be taken away as well. Not those that were added on a GPU, or read from bytes or digits.
        ValueError if fewer elements were added, or such ones that they cannot have made the sum.
        """
        if isinstance(array, Accumulator):
            self._merge(array, away=True)
            return self
        less = Accumulator(self._dtype).add(array, stream, device)
        self._take(less._total, less._specials, away=True)
        return self

    def _take(self, total: _host.Exact, specials: Any, *, away: bool = False) -> None:
        """Adds or subtracts a sum, and its counts of infinities and nans."""
        if specials is _NONE:
            self._total.merge(total, away)
            return
        with _LOCK:
            counts = self._specials - specials if away else self._specials + specials
            if (counts < 0).any():
                if not away:
                    raise OverflowError("an accumulator counts fewer than 2^63 infinities and nans")
                raise ValueError("infinities and nans can be subtracted only if they were added")
            self._total.merge(total, away)
            self._specials = counts if counts.any() else _NONE

    def _whole(self) -> _host.Exact:
        """The sum, with the counted infinities and nans added to it."""
        if self._specials is _NONE:
            return self._total
        made = self._total.copy()
        for part, counts in enumerate(self._specials):
            for value, count in zip(_VALUES, counts, strict=True):
                if count:
                    one = np.array([value if part == 0 else complex(0, value)])
                    made.add(one, dtypes.load_of(one.dtype), part + 1, False, 1)
        return made

    def _check(self, kind: str) -> None:
        if kind == "c" and self._dtype.kind != "c":
            raise TypeError(f"an accumulator of {self._dtype} cannot add complex numbers")

    def _add_on_gpu(self, array: object, stream: object, device: str | None) -> bool:
        module = gpu_arrays.module_for(device)
        if module is None or device == "cpu":
            return False

        def check(kind: str, nbytes: int, index: int) -> None:
            gpu_arrays.check_same_device(device, index)
            self._check(kind)

        states = gpu_arrays.ask(module.exact_gpu, array, check, gpu_arrays.stream_number(stream))
        if states is None:
            return False
        whole = exact.new(self._dtype)
        for component, state in enumerate(states):
            whole.add_state(state, component, component == 0)
        self._total.merge(whole)
        return True

    def value(self, dtype: npt.DTypeLike | None = None) -> Any:
        """The sum, rounded once to `dtype`, as a NumPy scalar."""
        wanted = self._dtype if dtype is None else dtypes.rounded_to(dtype)
        if self._dtype.kind == "c" and wanted.kind != "c":
            raise TypeError(f"dtype={wanted} would lose the imaginary part")
        return exact.value(self._whole(), wanted)

    def copy(self) -> Accumulator:
        """Another accumulator of the same value and count."""
        made = object.__new__(Accumulator)
        made._dtype, made._total = self._dtype, self._total.copy()
        made._specials = self._specials
        return made

    def _merge(self, other: Accumulator, *, away: bool = False) -> None:
        if other._dtype != self._dtype:
            what = "subtracted" if away else "added"
            raise TypeError(f"accumulators of {self._dtype} and {other._dtype} cannot be {what}")
        self._take(other._total, other._specials, away=away)

    def __iadd__(self, other: Accumulator | npt.ArrayLike) -> Accumulator:
        if isinstance(other, Accumulator):
            self._merge(other)
            return self
        return self.add(other)

    def __isub__(self, other: Accumulator | npt.ArrayLike) -> Accumulator:
        return self.subtract(other)

    def __sub__(self, other: Accumulator | npt.ArrayLike) -> Accumulator:
        return self.copy().subtract(other)

    def __add__(self, other: Accumulator | npt.ArrayLike) -> Accumulator:
        made = self.copy()
        made += other
        return made

    __array_ufunc__ = None  # array + accumulator is not an array of accumulators

    def __radd__(self, other: object) -> NoReturn:
        raise TypeError(
            f"{type(other).__name__} + Accumulator is not defined: acc += array adds an array, and "
            "acc1 + acc2 another accumulator"
        )

    # The error that `arrays.as_array` raises for arrays and lists of accumulators.
    _not_a_number = (
        "an Accumulator is not an array: acc1 + acc2 adds accumulators, and acc.value() is the sum "
        "of one"
    )

    def to_bytes(self) -> bytes:
        """The value, count and dtype as bytes, with a version and a checksum.

        Equal accumulators give equal bytes.
        """
        return self._whole().to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Accumulator:
        """Read an accumulator from the output of `to_bytes`; ValueError for other bytes."""
        return cls._of(_host.Exact.from_bytes(bytes(memoryview(data))), "bytes")

    @classmethod
    def _of(cls, total: _host.Exact, what: str) -> Accumulator:
        made = object.__new__(cls)
        made._total, made._specials = total, _NONE
        part = _NAME_OF[total.load]
        if total.components == 2 and part not in ("float32", "float64"):
            raise ValueError(f"these {what} are no accumulator: there is no such complex type")
        made._dtype = dtypes.named(part)
        if total.components == 2:
            made._dtype = np.dtype(f"c{2 * made._dtype.itemsize}")
        return made

    def to_digits(self) -> npt.NDArray[np.int64]:
        """The value, count and dtype as 75 int64 numbers (146 if complex), which can be added.

        The sum of such arrays, number by number, is that of the accumulators. So any engine that
        adds 64-bit integers merges them: an all-reduce of MPI, NCCL or gloo, a database, another
        language. Up to 2^30 arrays can be added, in any order, each of them once. They may be of
        one dtype only. `from_digits` takes the sum back.

        >>> import gpureduce
        >>> parts = [gpureduce.Accumulator().add([x]) for x in (1e100, 1.0, -1e100)]
        >>> digits = sum(part.to_digits() for part in parts)
        >>> total = gpureduce.Accumulator.from_digits(digits)
        >>> float(total.value()), total.count, digits.dtype, digits.shape
        (1.0, 3, dtype('int64'), (75,))
        """
        return np.frombuffer(self._whole().to_digits(), np.int64).copy()

    @classmethod
    def from_digits(cls, words: npt.ArrayLike) -> Accumulator:
        """Read the sum of accumulators from the sum of their `to_digits`.

        Raises ValueError for numbers that are no such sum, and TypeError if they are not int64.

        >>> import gpureduce
        >>> digits = gpureduce.Accumulator("float32").add([1.0, 2.0]).to_digits()
        >>> gpureduce.Accumulator.from_digits(digits + digits)
        <Accumulator float32: 6.0 of 4>
        """
        return cls._of(_host.Exact.from_digits(digits.one(words).tobytes()), "digits")

    @classmethod
    def from_words(
        cls,
        words: npt.ArrayLike,
        dtype: npt.DTypeLike = "float32",
        *,
        low: int | None = None,
        k: int | None = None,
        count: int | None = None,
    ) -> Accumulator:
        """Read one sum of a kernel that includes ``gpureduce/exact_add.cuh`` from its words.

        `dtype`, `low` and `k` are those of `gpureduce.exact_words`. Sums of int64 give an
        accumulator of float64. The words do not hold the number of elements, which `count` gives;
        by default it is the least number that can have this sum.

        >>> import gpureduce
        >>> one_and_a_half = [0, 0, 0, 0, 3 << 24, 0, 0, 0, 0]
        >>> gpureduce.Accumulator.from_words(one_and_a_half, "float32", count=2)
        <Accumulator float32: 1.5 of 2>
        """
        if count is not None:
            whole("count", count, 0, 2**63 - 1)
        of = exact_words.layout(dtype, low, k)
        return cls.from_digits(exact_words.to_digits(np.asarray(words), of, count))

    def __reduce__(self) -> tuple[Any, ...]:
        if self._specials is _NONE:
            return Accumulator.from_bytes, (self.to_bytes(),)
        return _restored, (self._total.to_bytes(), self._specials.tolist())

    def __eq__(self, other: object) -> bool:
        """Whether dtype, count and value are equal. Unlike floats, two nans are equal."""
        if not isinstance(other, Accumulator):
            return NotImplemented
        return self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        """The hash of the present value. Do not add to an accumulator that is a dictionary key."""
        return hash(self.to_bytes())

    def __repr__(self) -> str:
        return f"<Accumulator {self._dtype}: {self.value()} of {self.count}>"
