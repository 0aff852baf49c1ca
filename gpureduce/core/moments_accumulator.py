"""`gpureduce.Moments`: exact means and variances of numbers that come and go piece by piece."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from gpureduce import _host
from gpureduce.core import arrays, digits, dtypes, exact
from gpureduce.core.accumulator import Accumulator
from gpureduce.core.checks import finite

_SHIFT = 1088  # scale of the sums of small and large products, as log2: csrc/exact/products.h


def _squares_in(words: digits.Words) -> list[_host.Exact]:
    """The three sums whose digits follow one another: of small, usual and large squares."""
    return [_host.Exact.from_digits(some.tobytes()) for some in words.reshape(3, -1)]


class Moments:
    """The exact sum of all elements added so far, and that of their squares.

    Nothing is rounded until `mean`, `var` or `std` is called; these round once. So they do not
    depend on the pieces, on their order, or on elements that were taken away again.

    Parameters
    ----------
    dtype
        The dtype of the mean: float16, bfloat16, float32, float64, complex64 or complex128. That
        of variances is the same, or that of its real parts. Arrays of any other real dtype can be
        added, too, without rounding.

    Examples
    --------
    >>> import gpureduce
    >>> seen = gpureduce.Moments().add([1e8 + 1, 1e8 + 2]).add([1e8 + 3, 7.0])
    >>> seen.subtract([7.0]).count, float(seen.mean()), float(seen.var(ddof=1))
    (3, 100000002.0, 1.0)
    """

    __slots__ = ("_squares", "_sum")

    def __init__(self, dtype: npt.DTypeLike = "float64") -> None:
        self._sum = Accumulator(dtype)
        self._squares = [exact.new(np.dtype(np.float64)) for _ in range(3)]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the mean."""
        return self._sum.dtype

    @property
    def count(self) -> int:
        """The number of elements."""
        return self._sum.count

    def add(self, array: npt.ArrayLike) -> Moments:
        """Add all elements of an array in host memory, and return this object."""
        return self.merge(self._of(array))

    def merge(self, other: Moments) -> Moments:
        """Add the elements of another object, and return this one."""
        return self._take(other, away=False)

    def subtract(self, other: npt.ArrayLike | Moments) -> Moments:
        """Take elements away that were added before: those of an array or of another object."""
        return self._take(other if isinstance(other, Moments) else self._of(other), away=True)

    def _of(self, array: npt.ArrayLike) -> Moments:
        """The elements of one array."""
        if arrays.lies_on_a_gpu(array):
            raise TypeError("Moments takes arrays in host memory only: copy it from the GPU first")
        host = arrays.as_array(array)[...]  # other threads may change the shape of `array`
        total = Accumulator(self.dtype).add(host)  # which counts infinities and nans
        return self._with(total, _squares_in(digits.of_squares(host, tuple(range(host.ndim)))))

    @classmethod
    def _with(cls, total: Accumulator, squares: list[_host.Exact]) -> Moments:
        made = object.__new__(cls)
        made._sum, made._squares = total, squares
        return made

    def _take(self, other: Moments, *, away: bool) -> Moments:
        if not isinstance(other, Moments):
            raise TypeError(f"merge takes another Moments, not {type(other).__name__}")
        made = self._with(self._sum.copy(), [one.copy() for one in self._squares])
        made._sum._merge(other._sum, away=away)
        for mine, its in zip(made._squares, other._squares, strict=True):
            mine.merge(its, away)
        if away and made._square_sum() < 0:
            raise ValueError("only elements that were added before can be subtracted")
        self._sum, self._squares = made._sum, made._squares  # all is taken, or nothing
        return self

    def mean(self, dtype: npt.DTypeLike | None = None) -> Any:
        """The mean, rounded once. That of no elements is nan."""
        result = self.dtype if dtype is None else dtypes.rounded_to(dtype)
        if self.dtype.kind == "c" and result.kind != "c":
            raise TypeError(f"dtype={result} would lose the imaginary part")
        return digits.finished(self._sum.to_digits(), digits.MEAN, result)[()]

    def var(self, ddof: float = 0, dtype: npt.DTypeLike | None = None) -> Any:
        """The variance, rounded once: ``(n sum |x|^2 - |sum x|^2) / (n (n - ddof))``."""
        return self._variance(ddof, dtype, digits.VAR)

    def std(self, ddof: float = 0, dtype: npt.DTypeLike | None = None) -> Any:
        """The standard deviation: the root of the unrounded variance, rounded once."""
        return self._variance(ddof, dtype, digits.STD)

    def _variance(self, ddof: float, dtype: npt.DTypeLike | None, kind: int) -> Any:
        part = dtypes.part_of(self.dtype) if dtype is None else dtypes.rounded_to(dtype)
        if part.kind == "c":
            raise TypeError(f"variances are real numbers: dtype cannot be {part}")
        return digits.finished(self.to_digits(), kind, part, finite("ddof", ddof))[()]

    def to_digits(self) -> npt.NDArray[np.int64]:
        """All that this object holds as 300 int64 numbers (371 if complex), which can be added.

        The sum of such arrays, number by number, is that of the objects, as with
        `Accumulator.to_digits`. `from_digits` takes it back.
        """
        words = (np.frombuffer(one.to_digits(), np.int64) for one in self._squares)
        return np.concatenate([self._sum.to_digits(), *words])

    @classmethod
    def from_digits(cls, words: npt.ArrayLike) -> Moments:
        """Read the sum of objects from the sum of their `to_digits`.

        >>> import gpureduce
        >>> digits = gpureduce.Moments("float32").add([1.0, 3.0]).to_digits()
        >>> gpureduce.Moments.from_digits(digits + digits)
        <Moments float32: mean 2.0, std 1.0 of 4>
        """
        given = np.asarray(words)
        end = len(given) - digits.SQUARES if given.ndim == 1 else 0
        if end not in (digits.REAL, digits.COMPLEX):
            raise ValueError(
                f"digits of Moments are {4 * digits.REAL} numbers, or "
                f"{digits.COMPLEX + 3 * digits.REAL} for complex elements: the array has the shape "
                f"{given.shape}"
            )
        return cls._with(Accumulator.from_digits(given[:end]), _squares_in(given[end:]))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._sum, [one.to_bytes() for one in self._squares])

    def __eq__(self, other: object) -> bool:
        """Whether dtype, count, sum and sum of squares are equal."""
        if not isinstance(other, Moments):
            return NotImplemented
        return self._sum == other._sum and self._square_sum() == other._square_sum()

    __hash__ = None  # type: ignore[assignment]

    def _square_sum(self) -> Fraction:
        parts = (Fraction(exact.parts(one)[0]) for one in self._squares)
        return sum(
            (x * Fraction(2) ** (_SHIFT * k) for k, x in zip((-1, 0, 1), parts, strict=True)),
            Fraction(),
        )

    def __repr__(self) -> str:
        return f"<Moments {self.dtype}: mean {self.mean()}, std {self.std()} of {self.count}>"


def _restored(total: Accumulator, squares: list[bytes]) -> Moments:
    """Unpickles an object."""
    return Moments._with(total, [_host.Exact.from_bytes(data) for data in squares])
