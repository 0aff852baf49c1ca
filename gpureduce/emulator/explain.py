"""`explain`: counts a kernel's operations on the emulator, and shows why one rung is faster.

Nothing here is a time. The counts depend only on the kernel's source and the launch: active lanes,
accessed words and sectors, and barriers.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gpureduce import _emulator_traced as traced
from gpureduce.core import dtypes, registry, running_on_device, segments_on_device
from gpureduce.core.checks import named_keywords, shown, whole
from gpureduce.core.groups import few_segments
from gpureduce.core.plan import Launch, launch_of, launch_sizes
from gpureduce.emulator import explain_picture, explain_text, trace
from gpureduce.emulator.counts import CountsPair, KernelCounts, StrategyCounts
from gpureduce.emulator.picture import Picture


@dataclass(frozen=True)
class Explanation(StrategyCounts):
    """The counts of a strategy's kernels; see `explain`.

    `shape` and `axis` are those of a sum along an axis, and None for a whole sum. `segments` and
    `contention`, by ``"global"`` and ``"shared"`` memory, are those of a sum by segment.

    `counters`, `lines` and `steps` are those of the first launch, over the input. `kernels` has
    all launches. ``print`` shows a picture for the terminal. `plot` and a notebook draw it.

    >>> import gpureduce
    >>> counted = gpureduce.explain("interleaved_idx", n=2**12, block=256)
    >>> counted.wavefronts, counted.conflicts, counted.grid
    (2400, 1680, 16)
    >>> print(counted.worst_line.place)
    interleaved_idx.cu:23
    """

    def picture(self) -> Picture:
        """The drawing behind `plot` and the notebook's view."""
        return explain_picture.draw(self)

    def plot(self, ax: Any = None) -> Any:
        """Draw it with matplotlib; returns the axes."""
        return self.picture().plot(ax)

    def __str__(self) -> str:
        return explain_text.explanation(self)

    def _repr_html_(self) -> str:
        return self.picture().html(title=f"{self.strategy}: {self.lesson}")


@dataclass(frozen=True)
class Comparison(CountsPair):
    """The counts of two strategies side by side; see `explain`.

    >>> import gpureduce
    >>> both = gpureduce.explain("interleaved_mod", "interleaved_idx", n=2**12)
    >>> [change.name for change in both.rose]
    ['shared_store_conflicts', 'shared_load_conflicts']
    """

    before: Explanation
    after: Explanation

    def picture(self) -> Picture:
        """The drawing behind `plot` and the notebook's view."""
        return explain_picture.draw_comparison(self)

    def plot(self, ax: Any = None) -> Any:
        """Draw it with matplotlib; returns the axes."""
        return self.picture().plot(ax)

    def __str__(self) -> str:
        return explain_text.comparison(self)

    def _repr_html_(self) -> str:
        title = f"{self.before.strategy} → {self.after.strategy}: {self.lesson}"
        return self.picture().html(title=title)


def find(strategy: object, argument: str) -> registry.Strategy:
    """The strategy of this name, if it has a kernel of its own."""
    chosen = registry.find(strategy, argument)
    if chosen.launches_kernels and chosen.kind not in ("segments", "keys"):
        return chosen
    why = {
        "choice": f"{chosen.name} picks another strategy for each size and dtype: name the one "
        f"that gpureduce.sum(..., {chosen.name!r}).timing.strategy tells",
        "library": f"{chosen.name} is a compiled library, whose kernels the emulator cannot run",
        "host": f"{chosen.name} runs on the processor: there are no warps to count",
        "segments": f"{chosen.name} is a step of segment_sum, and makes no sum by itself",
        "keys": f"{chosen.name} adds up by segment: call explain({chosen.name!r}, segment_ids=ids)",
    }[chosen.kind]
    raise ValueError(f"{chosen.name} has no kernel of its own to run: {why}")


def find_keyed(strategy: object, argument: str) -> registry.Strategy:
    """The strategy of this name, if it has a kernel of sums by segment."""
    if isinstance(strategy, registry.UserKernel):
        raise TypeError("a kernel of your own takes no segment_ids: leave them out")
    chosen = registry.find(strategy, argument)
    if chosen.kind != "keys" and chosen.name != "exact":
        names = [s.name for s in registry.strategies() if s.kind == "keys"]
        raise ValueError(
            f"{chosen.name} takes no segment_ids: leave them out, or use {', '.join(names)} or "
            "exact"
        )
    return chosen


def find_whole(
    strategy: object, argument: str, dtype: npt.DTypeLike | None, by_key: bool = False
) -> tuple[registry.Strategy, np.dtype[Any]]:
    """A strategy with a kernel that adds up whole arrays, and the dtype of the elements.

    `by_key`: or one that adds up by segment.
    """
    chosen = find_keyed(strategy, argument) if by_key else find(strategy, argument)
    if chosen.kind == "axis":
        raise ValueError(
            f"{chosen.name} sums along an axis: name a kernel that adds up a whole array"
        )
    if dtype is None:
        dtype = "float32" if chosen.name == "exact" else dtype_of(chosen.dtypes)
    elements = dtypes.named(dtype)
    if dtypes.name_of(elements) not in chosen.dtypes:
        raise TypeError(f"{chosen.name} takes {', '.join(chosen.dtypes)}, not {dtype!r}")
    if elements.kind == "c":
        raise TypeError("a complex sum is two real sums: pass the dtype of a part, such as float32")
    return chosen, elements


@named_keywords
def explain(
    strategy: str | registry.UserKernel,
    other: str | registry.UserKernel | None = None,
    *,
    n: int | None = None,
    dtype: npt.DTypeLike | None = None,
    block: int = 256,
    grid: int | None = None,
    finish: str | None = None,
    input_dtype: npt.DTypeLike | None = None,
    sample: bool = True,
    shape: tuple[int, int] | None = None,
    segment_ids: npt.ArrayLike | None = None,
    num_segments: int | None = None,
) -> Explanation | Comparison:
    """Count what a strategy's kernel does, without a GPU; or compare two of them.

    Parameters
    ----------
    strategy, other
        Names or aliases out of `strategies`, or kernels of yours, out of `kernel`. With `other`,
        the two are compared.
    n
        How many elements are added up: by default 2^20. Their values make no difference, except to
        `exact`, which is counted for zeros. Of running sums, all launches are counted together.
    dtype
        The dtype to add up in, and of the elements unless `input_dtype` says otherwise. By default
        int32, as in the lectures' ladder. It is float32 for `exact` and other strategies that take
        only floats, and the first dtype of a kernel of yours that does not take int32. Two that
        are compared have the same dtype.
    block, grid, finish
        As in `sum`. Without `grid`, kernels with a grid-stride loop get the blocks that fill the
        emulated card, which is a small one. `exact` by segment chooses both.
    input_dtype
        The dtype of the elements.
    sample
        Count some blocks for all that do the same, which gives the same numbers in less time;
        False runs every block.
    shape
        Rows and columns, in place of `n`, for kernels that make sums along an axis: by default
        (4096, 64). Their first launch is counted: along axis 0 for those of columns, and along
        axis 1 for the others.
    segment_ids, num_segments
        For sums by segment, by ``"exact"`` and the kernels from ``"key_atomic"`` to
        ``"key_fixed"``: the key of each element, as in `segment_sum`, in place of `n`. All elements
        are 1, and all launches are counted together.

    Returns
    -------
    Explanation or Comparison
        The counts of one strategy, or of two.

    Raises
    ------
    ValueError
        An argument does not exist or is not for this strategy, or the strategy has no kernel of
        its own.
    TypeError
        The strategy does not take that dtype.
    CudaError
        The kernel fails.

    Examples
    --------
    >>> import gpureduce, numpy as np
    >>> gpureduce.explain("interleaved_idx", n=256).counters["shared_load_conflicts"]
    70
    >>> both = gpureduce.explain("interleaved_idx", "sequential", n=256)
    >>> both.fell[0].name, both.fell[0].before, both.fell[0].after
    ('shared_load_conflicts', 70, 0)
    >>> keys = np.arange(4096) % 10
    >>> gpureduce.explain("key_atomic", segment_ids=keys).contention["global"]
    Contention(atomics=4096, addresses=10, most=410, turns=512)
    """
    if dtype is None:
        dtype = _default_dtype(strategy, other)
    if segment_ids is None and num_segments is not None:
        raise ValueError("num_segments needs segment_ids: pass them, or leave num_segments out")
    if segment_ids is not None:
        if n is not None or shape is not None:
            raise ValueError("segment_ids set the number of elements: leave n and shape out")
        count = functools.partial(
            _explain_keys, segment_ids=segment_ids, num_segments=num_segments, dtype=dtype,
            input_dtype=input_dtype, launch=launch_sizes(block, grid),
        )  # fmt: skip
    else:
        count = functools.partial(
            _explained, n=n, dtype=dtype, block=block, grid=grid, finish=finish,
            input_dtype=input_dtype, sample=sample, shape=shape,
        )  # fmt: skip
    first = count(strategy, "strategy")
    if other is None:
        return first
    second = count(other, "other")
    if first.strategy == second.strategy and strategy != other:  # two kernels of one name
        first = replace(first, strategy=f"{first.strategy} (1)")
        second = replace(second, strategy=f"{second.strategy} (2)")
    return Comparison(first, second)


def explained(strategy: Any, **how: Any) -> Explanation:
    """`explain` of one strategy, or of a line of the registry."""
    return cast(Explanation, explain(strategy, **how))


def _default_dtype(*strategies: object) -> str:
    """int32, or the own dtype of the first strategy that does not take int32."""
    own = (_dtypes(one, name) for one, name in zip(strategies, ("strategy", "other"), strict=True))
    return next((one for one in map(dtype_of, own) if one != "int32"), "int32")


def dtype_of(taken: tuple[str, ...]) -> str:
    """int32, or the first dtype that a strategy takes."""
    return "int32" if "int32" in taken else taken[0]


def _dtypes(strategy: object, argument: str) -> tuple[str, ...]:
    """The dtypes that a strategy can be explained for."""
    if strategy is None and argument == "other":
        return ("int32",)
    if isinstance(strategy, registry.UserKernel):
        return strategy.dtypes
    row = registry.find(strategy, argument)
    return ("float32",) if row.name in ("exact", "exact_levels") else row.dtypes


def _explained(strategy: object, argument: str, **asked: Any) -> Explanation:
    if isinstance(strategy, registry.UserKernel):
        return cast(Explanation, strategy.call("explain", **asked))
    return _explain(find(strategy, argument), **asked)


def _explain(
    chosen: registry.Strategy,
    n: int | None,
    dtype: npt.DTypeLike,
    block: int | None,
    grid: int | None,
    finish: str | None,
    input_dtype: npt.DTypeLike | None,
    sample: bool,
    shape: tuple[int, int] | None,
) -> Explanation:
    if chosen.kind == "axis" and n is not None:
        raise ValueError(f"{chosen.name} sums along an axis: pass shape, not n")
    if chosen.kind != "axis" and shape is not None:
        raise ValueError(f"{chosen.name} sums whole arrays: pass n, not shape")
    n = whole("n", 2**20 if n is None else n, 1, 2**63 - 1)
    source = dtypes.named(dtype if input_dtype is None else input_dtype)
    conversion = dtypes.convert_for(source, dtype, chosen.pair)
    if conversion.is_complex:
        raise TypeError(
            "explain takes no complex dtype, because a complex sum is two real sums: pass the "
            "dtype of one part, such as float32"
        )
    elements = source if conversion.cast is None else conversion.cast
    threads, blocks, finish = launch_of(chosen, block, grid, finish)
    if chosen.kind == "axis":
        return _explain_axis(chosen, shape or (4096, 64), conversion, source, threads, blocks)
    if chosen.kind == "scan":
        whole("n", n, 1, 2**22)  # all blocks run
        ones = np.ones(n, source)
        result = conversion.result
        how = running_on_device.arguments_of_run(traced, chosen, ones, result, threads, blocks)
        counted, _ = trace.count_run(*how)
        return _explanation(chosen, conversion, source, n, (counted,))
    launch = Launch(
        chosen.index, conversion.load, conversion.acc, threads, blocks,
        registry.finish_number(finish),
    )  # fmt: skip
    counted, count = trace.Request(chosen, n, launch, elements.itemsize, False).count(sample=sample)
    kernels = [counted]
    while count > 1 and finish != "host" and chosen.finishes != ("single",):
        element = dtypes.number_of(conversion.acc).itemsize
        later = trace.Request(chosen, count, launch, element, True)
        counted, count = later.count(sample=sample)
        kernels.append(counted)
    return _explanation(chosen, conversion, source, n, tuple(kernels))


def _explanation(
    chosen: registry.Strategy, conversion: dtypes.Conversion, source: np.dtype[Any], n: int,
    kernels: tuple[KernelCounts, ...], **more: Any,
) -> Explanation:  # fmt: skip
    """The explanation of these launches."""
    return Explanation(
        counters=kernels[0].counters, details=kernels[0].details, strategy=chosen.name,
        lesson=chosen.lesson, n=n, dtype=conversion.result.name, input_dtype=source.name,
        kernels=kernels, **more,
    )  # fmt: skip


def _explain_axis(
    chosen: registry.Strategy,
    shape: tuple[int, int],
    conversion: dtypes.Conversion,
    source: np.dtype[Any],
    block: int,
    grid: int,
) -> Explanation:
    if not isinstance(shape, tuple) or len(shape) != 2:
        raise TypeError(f"shape must be a tuple (rows, columns), not {shown(shape)}")
    rows, columns = whole("rows", shape[0], 1, 2**24), whole("columns", shape[1], 1, 2**24)
    whole("rows * columns", rows * columns, 1, 2**24)  # each access is looked at
    if chosen.name == "exact_levels" and not dtypes.is_exact(conversion.result):
        raise TypeError("exact_levels sums floats only: pass a float dtype")
    axis = cast(int, chosen.axis)
    launch = Launch(chosen.index, conversion.load, conversion.acc, block=block, grid=grid)
    counted = trace.count_axis((rows, columns), axis, launch)
    how = {"shape": (rows, columns), "axis": axis}
    return _explanation(chosen, conversion, source, rows * columns, (counted,), **how)


def _explain_keys(
    strategy: object,
    argument: str,
    segment_ids: npt.ArrayLike,
    num_segments: int | None,
    dtype: npt.DTypeLike,
    input_dtype: npt.DTypeLike | None,
    launch: tuple[int, int],
) -> Explanation:
    """Counts a sum by segment; see `explain`."""
    chosen = find_keyed(strategy, argument)
    source = dtypes.named(dtype if input_dtype is None else input_dtype)
    n = np.size(segment_ids)
    if not 0 < n <= 2**22:
        raise ValueError(f"segment_ids must be 1 to 2^22 integers, not {shown(segment_ids)}")
    values, conversion = np.ones(n, source), dtypes.convert(source, dtype)
    segments = few_segments(segment_ids, num_segments, values, 2**24)
    how = (chosen, conversion, values, segments, launch)
    counted, contention = trace.count_run(*segments_on_device.counted_arguments(*how))
    more = {"contention": contention, "segments": segments.size}
    return _explanation(chosen, conversion, source, n, (counted,), **more)
