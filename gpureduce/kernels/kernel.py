"""`gpureduce.kernel`: a kernel of yours, as text, for everything that takes a strategy's name."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpureduce import _host
from gpureduce.core import arrays, dtypes, groups, registry, schedule, text_files
from gpureduce.core.checks import named_keywords, no_stream, shown
from gpureduce.core.devices import Device, check_device
from gpureduce.core.plan import Arguments
from gpureduce.core.results import SumResult
from gpureduce.kernels import (
    compiling,
    conditions,
    on_card,
    options,
    process,
    programs,
    signature,
    source_text,
)  # fmt: skip
from gpureduce.kernels.compiling import Source
from gpureduce.kernels.conditions import Domain
from gpureduce.kernels.signature import Signature
from gpureduce.kernels.source_text import KernelError
from gpureduce.kernels.types import ACC_OF, ACC_TAGS, LOAD_OF, LOAD_TAGS, TAG_OF_DTYPE, Pair
from gpureduce.kernels.worker import Job, Limits, Loaded
from gpureduce.lazy_import import load

__all__ = ["Kernel", "KernelError", "Limits", "kernel"]

_WIDE = registry.STRATEGIES["scan_warp"].dtypes  # of running sums
_MANY = 2**16  # elements, each of whose sums takes long
_FEWER = 2**13  # elements that are few enough for many sums
_MOST_IN_TEXTS = 2**40  # elements of a constant


@dataclass(frozen=True)
class Kernel(registry.UserKernel):
    """A kernel of yours; see `kernel`.

    `gpureduce.sum`, `explain`, `races`, `check` and `benchmark` take it in place of a strategy's
    name. On the emulator it runs in a process of its own with `limits`. So a kernel that crashes or
    hangs raises `KernelEnded`, and harms nothing. `sum` and `benchmark` run it on a card, if there
    is one, in this process: a fault there ends the process's use of the card.

    Attributes
    ----------
    text
        Its source.
    file
        The name of its file in messages.
    signature
        Its name, its template and its parameters.
    options
        How it is launched: as given, or as its text shows.
    limits
        The time and memory that a call may take.

    Examples
    --------
    >>> import gpureduce
    >>> k = gpureduce.kernel('''
    ... template <typename In, typename Acc> __global__ void mine(In in, Acc *out, size_t n)
    ... {
    ...     size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    ...     if (i < n)
    ...         atomicAdd(out, Acc(in[i]));
    ... }
    ... ''')
    >>> k.name, k.options["elements"], k.options["finishes"]
    ('mine', '1', 'yes')
    """

    text: str
    file: str
    signature: Signature
    options: dict[str, str] = field(hash=False)
    traits: int
    folder: str | None = None
    limits: Limits = field(default_factory=Limits)

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.signature.name

    def __repr__(self) -> str:
        said = ", ".join(f"{key}={value}" for key, value in self.options.items())
        return f"<kernel {self.name} of {self.file}: {said}>"

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes of elements that it takes; the first is the default."""
        if self.signature.pair:
            if self.signature.pair == ("u32", "u32"):
                return ("int32", "uint32")
            own = [n for n, tag in TAG_OF_DTYPE.items() if tag == self.signature.pair[0]]
            return tuple(sorted(own, key=lambda name: name == "bool"))  # which shows fewer mistakes
        if self.scans:
            return _WIDE
        return ("int32", *(name for name in registry.DTYPES if name != "int32"))

    @property
    def scans(self) -> bool:
        """Whether it makes running sums."""
        return self.options.get("operation") == "cumsum"

    @property
    def source(self) -> Source:
        """The text for the compiler."""
        return Source(self.text, self.file, self.folder)

    @property
    def pair(self) -> tuple[int, int] | None:
        """The numbers of the types of elements and sums, if it has no type parameters."""
        own = self.signature.pair
        return (LOAD_OF[own[0]], ACC_OF[own[1]]) if own else None

    def pairs(self, source: np.dtype[Any], wanted: npt.DTypeLike | None) -> list[Pair]:
        """The pairs of element and accumulator types that a sum needs: the elements, block sums."""
        conversion = dtypes.convert_for(source, wanted, self.pair)
        first = (LOAD_TAGS[conversion.load], ACC_TAGS[conversion.acc])
        own = self.signature.pair
        if own and first != own:
            hint = ' with dtype="int32" or "uint32"' if own == ("u32", "u32") else ""
            raise TypeError(
                f"{self.name} sums {own[0]} in {own[1]}: pass an array of "
                f"{' or '.join(self.dtypes)}{hint}, not of {source.name} for a sum in "
                f"{conversion.result.name}"
            )
        if self.signature.types == 1 and first[0] != first[1]:
            raise TypeError(
                f"{self.name} has one type for elements and sums, but {source.name} is summed in "
                f"{conversion.result.name}: pass dtype={source.name!r}"
            )
        return [first] if own else list(dict.fromkeys([first, (first[1], first[1])]))

    @property
    def finishes(self) -> tuple[str, ...]:
        """The values for `finish=`.

        A kernel for other elements than its sums adds up no sums, and neither does one that takes
        only as many as fill its blocks.
        """
        if self.traits & _host.FINISHES:
            return ("single",)
        own = self.signature.pair
        by_host = (own and own[0] != own[1]) or self.domain.condition.full
        by_host = by_host or not self.signature.takes_n or self.signature.vector > 1
        return ("host",) if by_host else ("relaunch", "host")

    @cached_property
    def domain(self) -> Domain:
        """Where it is to be right, as its options say."""
        alone, elements = self.options.get("alone") == "yes", self.options["elements"]
        alone = alone and not self.scans
        per_thread, named = options.per_block(self.signature.code)
        alone = alone and not re.search(r"\+=[^;]{0,60}\bblockDim\b", self.signature.code)
        if elements != "many" and not alone:
            per_thread = int(elements)
        found = conditions.domain(self.options, per_thread, named, alone, self.signature.block)
        within = self.scans and "work" not in self.signature.roles
        within = within and not self.traits & _host.ALONE
        return replace(found, multiple=self.signature.per_n, within=within)

    def with_elements(self, count: int) -> Kernel:
        """The same kernel with so many elements for each thread."""
        chosen = self.options | {"elements": str(count)}
        return replace(self, options=chosen, traits=options.traits_of(self.signature, chosen))

    def with_fewer_elements(self) -> tuple[Kernel, str]:
        """The same kernel with a smaller constant for n, if its own is large; and a remark on it.

        Each of many sums and races of so many elements would take too long.
        """
        n = options.fixed_size(self.signature.code, self.signature, _MOST_IN_TEXTS)
        usual = self.options.get("sizes") in ("full_blocks", str(n))
        if self.signature.takes_n or n is None or n <= _MANY or not usual:
            return self, ""
        part = min(n & -n, 2048)  # n fills the same blocks, and is odd where it was
        rest = n // part
        while rest * part > _FEWER:
            rest = rest // 2 | rest % 2
        now = rest * part
        text = source_text.with_constant(self.text, n, now)
        if text == self.text:
            return self, ""
        code = source_text.with_constant(self.signature.code, n, now)
        found = replace(self.signature, code=code)
        made = replace(self, text=text, signature=found, options=self.options | {"sizes": str(now)})
        return made, f"the constant {n} of the text was {now}, so that it could be tried often"

    @cached_property
    def obsolete(self) -> str:
        """What no CUDA since version 9 compiles, in sentences; empty if there is nothing."""
        return "; ".join(
            f"line {line}: {old} is now {now}"
            for line, old, now in dict.fromkeys(programs.obsolete(self.signature.code))
        )

    def loaded(self, pairs: list[Pair], may_be_obsolete: bool = False) -> Loaded:
        """Compiles the kernel for the emulator, for pairs of types."""
        if self.obsolete and not may_be_obsolete:
            raise KernelError(f"{self.name} has not compiled since CUDA 9: {self.obsolete}")
        made = [compiling.libraries(self.source, self.signature, pair) for pair in pairs]
        return Loaded(
            self.name, self.file, self.text, self.traits, self.dtypes, self.finishes,
            tuple(str(plain) for plain, _ in made), tuple(str(traced) for _, traced in made),
            self.pair, "scan" if self.scans else "kernel",
        )  # fmt: skip

    def run(self, module: str, function: str, pairs: list[Pair], *arguments: Any,
            **named: Any) -> Any:  # fmt: skip
        """Calls a function of this package in the process for kernels."""
        limits = named.pop("limits", self.limits)
        loaded = self.loaded(pairs, named.pop("may_be_obsolete", False))
        job = Job(module, function, loaded, arguments, named, limits)
        outcome = process.run(job)
        print(outcome.printed, end="")
        return process.result_of(outcome, self.name)

    def call(self, function: str, *arguments: Any, **named: Any) -> Any:
        """Calls a public function with this kernel, on a card or in the process for kernels."""
        return getattr(self, f"_{function}")(*arguments, **named)

    def _cumsum(self, arr: Any, *how: Any) -> Any:
        axis, dtype, out, reverse, include_initial, block, grid, device, stream, timing = how
        if not self.scans:
            raise ValueError(
                f"{self.name} makes one sum: for running sums, pass kernel(..., operation='cumsum')"
            )
        if device not in (None, "emulator") or stream is not None or arrays.lies_on_a_gpu(arr):
            raise ValueError(
                f"{self.name} makes running sums on the emulator only: leave device and stream "
                "out, and pass an array in host memory"
            )
        array = arrays.as_array(arr)
        result = dtypes.convert_for(array.dtype, dtype, self.pair).result
        block = self.domain.condition.usual_block if block is None else block
        found = self._added(
            array, result, result, block, axis=axis, dtype=dtype, grid=grid, reverse=reverse,
            include_initial=include_initial, timing=timing,
        )  # fmt: skip
        if out is None:
            return found
        groups.checked_out(out, array, found.value.shape, found.value.dtype)[...] = found.value
        return SumResult(out, found.timing)

    def _sum(self, arr: Any, *how: Any) -> Any:
        if self.scans:
            raise ValueError(f"{self.name} makes running sums: call gpureduce.cumsum")
        dtype, block, grid, finish, device, _, stream, timing = how
        block = self.domain.condition.usual_block if block is None else block
        check_device(device)
        if device == "cpu":
            raise ValueError(
                f"{self.name} is a GPU kernel: device must be 'cuda' or 'emulator', or left out"
            )
        if device != "emulator":
            if hasattr(arr, "shape"):
                self.check_size(math.prod(arr.shape), block)
            asked = Arguments(self.name, dtype, block, grid, finish, device, False, stream, timing)
            result = on_card.add(self, arr, asked)
            if result is not None:
                return result
        no_stream(stream)
        array = arrays.as_array(arr)
        return self._added(
            array, array.dtype, dtype, block, dtype=dtype, grid=grid, finish=finish, timing=timing
        )

    def _added(
        self, array: Any, source: np.dtype[Any], wanted: Any, block: int | None, **named: Any
    ) -> Any:
        """The sum of a host array, or its running sums, on the emulator."""
        self.check_size(array.size, block)
        pairs, order = self.pairs(source, wanted), schedule.current()
        return self.run("gpureduce.kernels.jobs", "add", pairs, array, order, block=block, **named)

    def check_size(self, n: int, block: int | None) -> None:
        """Raises for a number of elements that a kernel without n does not add up."""
        if n % self.domain.multiple:
            raise ValueError(
                f"{self.name} reads vectors: n must be a multiple of {self.domain.multiple}, not "
                f"{n}"
            )
        part, sizes = (block or 256) * self.domain.per_thread, self.domain.sizes
        if self.domain.within and n > part:
            raise ValueError(
                f"{self.name} makes running sums within one block, of at most {part} elements, not "
                f"{n}: for more, add a parameter for the blocks' sums, such as float *sums"
            )
        if self.signature.takes_n:
            return
        if sizes and n not in sizes:
            raise ValueError(
                f"{self.name} has no parameter n, and works for {' or '.join(map(str, sizes))} "
                f"elements only, not {n}"
            )
        if not sizes and n % part:
            raise ValueError(
                f"{self.name} takes whole blocks only, as it has no parameter n: with blocks of "
                f"{block or 256} threads, a multiple of {part} elements, not {n}"
            )

    def usual_size(self, n: int | None, block: int, blocks: int) -> int | None:
        """The size n; by default, for a kernel without n, one that it adds up."""
        where = self.domain
        if n is None and where.within:
            return block * where.per_thread
        if n is None and not self.signature.takes_n:
            each = block * where.per_thread
            return where.sizes[0] if where.sizes else each if where.alone else blocks * each
        return n

    def _place(self, device: Device, source: np.dtype[Any], wanted: Any) -> registry.Strategy:
        return on_card.place(self, device, source, wanted)

    def _measure(
        self, array: Any, dtype: Any, block: Any, grid: Any, repeats: int, apart: bool
    ) -> Any:
        """The times of the launches on the emulator, in ms, with block and grid."""
        pairs = self.pairs(array.dtype, dtype)
        return self.run(
            "gpureduce.kernels.jobs", "measure", pairs, array, dtype, block, grid, repeats, apart,
            limits=self.limits.times(repeats),
        )  # fmt: skip

    def _verify_counters(self, sizes: Any, blocks: Any, dtype: str) -> Any:
        takes = dtype == "int32" and "int32" not in self.dtypes
        own = self.dtypes[0] if takes else dtype
        return load("kernels.verifying").verify(self, sizes, blocks, own)

    def _explain(self, **named: Any) -> Any:
        wanted = dtypes.named(named["dtype"])
        elements = named["input_dtype"]
        pairs = self.pairs(wanted if elements is None else dtypes.named(elements), wanted)
        return self.run("gpureduce.kernels.jobs", "count", pairs, **named)

    def _replay(self, *how: Any) -> Any:
        return load("kernels.replaying").replay(self, *how)

    def _races(self, n: Any, dtype: Any, block: Any, grid: Any, schedules: Any) -> Any:
        dtype = dtypes.named(self.dtypes[0] if dtype is None else dtype)
        pairs = self.pairs(dtype, dtypes.in_itself(dtype, self.pair))
        n = self.usual_size(n, block, 8)
        if n is not None:
            self.check_size(n, block)
        named = {"n": n, "dtype": dtypes.name_of(dtype), "block": block, "grid": grid}
        return self.run("gpureduce.kernels.jobs", "race", pairs, schedules=schedules, **named)


# Marks of a text. A path may have parentheses, too, but hardly ends with one.
_NO_PATH = re.compile(r"[\n{};]|__global__|\)\s*$")


def _text_of(given: str | os.PathLike[str]) -> tuple[str, str | None, str | None]:
    """The text of a kernel, and the name and the folder of its file."""
    if isinstance(given, str) and (_NO_PATH.search(given) or not given.strip()):
        return given, None, None
    if not isinstance(given, (str, os.PathLike)):
        raise TypeError(
            f"kernel() takes a kernel's text or a path, as a str or a Path, not {shown(given)}"
        )
    path = Path(given)
    try:
        text = text_files.read(path)
    except ValueError as error:
        raise KernelError(f"{path} cannot be read as a kernel: {error}") from None
    if not re.fullmatch(r"[\w.+-]+", path.name):
        raise KernelError(
            f"a kernel's file name may have letters, digits and the signs _.+-, not {path.name!r}"
        )
    return text, path.name, str(path.resolve().parent)


@named_keywords
def kernel(
    text_or_path: str | os.PathLike[str],
    name: str | None = None,
    *,
    elements: int | str | None = None,
    shared: str | None = None,
    finishes: bool | str | None = None,
    scratch: str | None = None,
    alone: bool | str | None = None,
    blocks: int | str | Sequence[int] | None = None,
    sizes: int | str | Sequence[int] | None = None,
    operation: str | None = None,
    limits: Limits | None = None,
) -> Kernel:
    r"""A kernel of yours, compiled for a card or for the emulator when it is first used.

    It has one of two forms, with ordinary CUDA C in the body::

        template <typename In, typename Acc> __global__ void NAME(In in, Acc *out, size_t n)
        __global__ void NAME(const float *in, float *out, size_t n)

    The order of the parameters does not matter: their types, ``const`` and use tell the elements
    from the sums. A kernel without `n` gets as many elements as fill its blocks. Of a whole program
    the kernel is taken, and the host's functions are left out.

    A fourth parameter is scratch memory (``Acc *work``), a fifth a ticket (``unsigned *ticket``),
    which is 0 at the start of each launch. ``shared_array<Acc>()`` and ``extern __shared__`` are
    the block's dynamic shared memory; ``__shared__`` arrays work, too.

    What is not given here is read from a comment, as in ``// gpureduce: elements=2 finishes=no``,
    and otherwise guessed from the text. `Kernel.options` tells what was found.

    Parameters
    ----------
    text_or_path
        The text of the kernel, or the path of its file.
    name
        The kernel's name, if there are several in the text.
    elements
        Elements per thread: 1 to 8, 10, 12, 16, 20, 24 or 32 (the grid covers the input), or
        ``"many"`` (a loop with the grid's stride; the grid fills the card).
    shared
        Dynamic shared memory: ``"thread"`` or ``"warp"`` for an accumulator for each, ``"twice"``
        for two per thread, ``"none"``, or ``"ring"`` for the tiles of bulk copies.
    finishes
        True if the kernel leaves the sum in ``out[0]``, False if a sum per block in ``out[]``.
    scratch
        What the fourth parameter holds: an accumulator per ``"thread"`` or per ``"block"``, or a
        ``"marked"`` one per block, with a mark that it is stored: ``Marked<Acc>``.
    alone
        True for a kernel that is launched as a single block or cluster.
    blocks
        The blocks for which it is to be right: numbers, or ``"powers_of_two"``, ``"at_least_64"``,
        ``"at_most_256"``. By default all.
    sizes
        The numbers of elements for which it is to be right: ``"full_blocks"``, or numbers. By
        default all.
    operation
        ``"cumsum"`` for a kernel that makes running sums: ``out[i]`` is the sum of the elements up
        to i. If it has scratch memory, each block makes those of its own elements, and stores its
        sum there, in ``work[blockIdx.x]``: further launches do the rest. If it has a ticket, too,
        one launch makes all. Otherwise it is for as many elements as one block has.
    limits
        The time and memory for each call.

    Returns
    -------
    Kernel
        For `sum` or `cumsum`, `explain`, `races`, `replay` and `check`.

    Raises
    ------
    KernelError
        The text has no kernel of these forms. Errors of the compiler come when the kernel is first
        used.

    Examples
    --------
    >>> import gpureduce, numpy as np
    >>> k = gpureduce.kernel('''
    ... __global__ void mine(const float *in, float *out, size_t n)
    ... {
    ...     __shared__ float partial[1024];
    ...     size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    ...     partial[threadIdx.x] = i < n ? in[i] : 0;
    ...     __syncthreads();
    ...     if (threadIdx.x == 0) {
    ...         float sum = 0;
    ...         for (unsigned t = 0; t < blockDim.x; t++)
    ...             sum += partial[t];
    ...         out[blockIdx.x] = sum;
    ...     }
    ... }
    ... ''')
    >>> float(gpureduce.sum(np.ones(1000, np.float32), k).value)
    1000.0
    """
    text, file, folder = _text_of(text_or_path)
    if limits is not None and not isinstance(limits, Limits):
        raise TypeError(f"limits must be gpureduce.Limits(seconds=...), not {shown(limits)}")
    signature.check_text(text)
    program, text = text, programs.device_code(text, folder)
    found = signature.read(text, name, program, options.scans(text, operation))
    given: dict[str, object] = {
        "elements": elements, "shared": shared, "finishes": finishes, "scratch": scratch,
        "alone": alone, "blocks": blocks, "sizes": sizes, "operation": operation,
    }  # fmt: skip
    chosen = options.options_of(text, found, given)
    traits = options.traits_of(found, chosen)
    made = Kernel(text, file or f"{found.name}.cu", found, chosen, traits, folder,
                  limits or Limits())  # fmt: skip
    if made.scans and found.pair and found.pair[0] != found.pair[1]:
        raise KernelError(
            f"{made.name} reads {found.pair[0]} and stores {found.pair[1]}: a kernel for running "
            "sums must store the type that it reads"
        )
    if not made.domain.condition.blocks:
        raise KernelError(
            f"{made.name} takes the block size as a template parameter, so blocks must be among "
            f"{', '.join(map(str, compiling.BLOCKS))} threads, not {chosen['blocks']}"
        )
    made.source.for_the_emulator()  # raises for what it cannot take
    return made
