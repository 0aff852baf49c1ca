"""`gpureduce.Accumulator`: an exact sum that grows piece by piece, anywhere."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from gpureduce import _host
from gpureduce.core import arrays, devices, digits, dtypes, exact, gpu_arrays
from gpureduce.core.registry import COMPLEX, DTYPES

_FLOATS = [name for name in DTYPES if "float" in name]
_NAME_OF = {DTYPES[name].load: name for name in _FLOATS}


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

    __slots__ = ("_dtype", "_total")

    def __init__(self, dtype: npt.DTypeLike = "float64") -> None:
        named = dtypes.named(dtype).newbyteorder("=")
        if not dtypes.is_float(named):
            raise TypeError(
                f"an accumulator is of {', '.join((*_FLOATS, *COMPLEX))}, not {named}; integers "
                "never round: numpy.sum will do"
            )
        self._dtype = named
        self._total = exact.new(named)

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
            raise TypeError("add takes an array; another accumulator is added by +=")
        if isinstance(array, np.ndarray):
            devices.check_device(device)
        elif self._add_on_gpu(array, stream, device):
            return self
        if stream is not None:
            raise ValueError("stream is for arrays on a GPU; this one is in host memory")
        host = arrays.as_array(array)
        dtypes.convert(host.dtype, None)  # raises if the dtype cannot be summed
        self._check(host.dtype.kind)
        whole = exact.new(
            self._dtype
        )  # a signal handler may raise meanwhile: all of the array is added, or nothing
        exact.feed(whole, host)
        self._total.merge(whole)
        return self

    def _check(self, kind: str) -> None:
        if kind == "c" and self._dtype.kind != "c":
            raise TypeError(f"a sum of {self._dtype} has no place for imaginary parts")

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
        return exact.value(self._total, wanted)

    def copy(self) -> Accumulator:
        """Another accumulator of the same value and count."""
        made = object.__new__(Accumulator)
        made._dtype, made._total = self._dtype, self._total.copy()
        return made

    def _merge(self, other: Accumulator) -> None:
        if other._dtype != self._dtype:
            raise TypeError(f"accumulators of {self._dtype} and {other._dtype} cannot be added")
        self._total.merge(other._total)

    def __iadd__(self, other: Accumulator | npt.ArrayLike) -> Accumulator:
        if isinstance(other, Accumulator):
            self._merge(other)
            return self
        return self.add(other)

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
        return self._total.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Accumulator:
        """Read an accumulator from the output of `to_bytes`; ValueError for other bytes."""
        return cls._of(_host.Exact.from_bytes(bytes(memoryview(data))), "bytes")

    @classmethod
    def _of(cls, total: _host.Exact, what: str) -> Accumulator:
        made = object.__new__(cls)
        made._total = total
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
        return np.frombuffer(self._total.to_digits(), np.int64).copy()

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

    def __reduce__(self) -> tuple[Any, ...]:
        return Accumulator.from_bytes, (self.to_bytes(),)

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
