"""Conditions under which a kernel is right, and the search for the weakest one.

There are four kinds only: a set of blocks, n that fills the blocks, n of at least 1 (which every
sum has here), and lanes in lockstep.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from gpureduce.kernels.source_text import KernelError

KEYS = ("blocks", "sizes")  # the options of a kernel that say where it is to be right
BLOCKS = tuple(range(32, 1025, 32))
MOST_ELEMENTS = 2**24  # of a size that is named
_FORMS = "64,128,256 or powers_of_two, at_least_64, at_most_256"
_WORDS = "powers_of_two, at_least_64, at_most_256, 256, full_blocks, lockstep"


@dataclass(frozen=True)
class Condition:
    """A set of blocks, sizes and orders of lanes.

    `powers`: the block is a power of two. `least`, `most`: the smallest and the largest block.
    `only`: these blocks alone, if it has any. `full`: n is a multiple of the elements per block.
    `lockstep`: the 32 lanes of a warp run in lockstep.

    >>> from gpureduce.kernels.conditions import parsed
    >>> weak, strong = parsed("powers_of_two"), parsed("blocks=128,256 sizes=full_blocks")
    >>> str(strong), strong.implies(weak), weak.implies(strong)
    ('128 256 full_blocks', True, False)
    """

    powers: bool = False
    least: int = 32
    most: int = 1024
    only: tuple[int, ...] = ()
    full: bool = False
    lockstep: bool = False

    def allows_block(self, block: int) -> bool:
        """Whether a block is in the set."""
        fits = self.least <= block <= self.most and not (self.powers and block & (block - 1))
        return fits and (not self.only or block in self.only)

    def lacks(self, block: int) -> str:
        """The part of the condition that a block does not meet; empty if it meets all."""
        if self.only:
            return "" if block in self.only else "only"
        powers = "powers" if self.powers and block & (block - 1) else ""
        return "least" if block < self.least else "most" if block > self.most else powers

    def within(self, other: Condition) -> Condition:
        """What both conditions allow."""
        only = tuple(b for b in self.only if b in other.only) if self.only and other.only else ()
        return Condition(
            self.powers or other.powers, max(self.least, other.least), min(self.most, other.most),
            only or self.only or other.only, self.full or other.full,
            self.lockstep or other.lockstep,
        )  # fmt: skip

    def implies(self, other: Condition) -> bool:
        """Whether all that this condition allows is allowed by the other one."""
        blocks = all(other.allows_block(block) for block in BLOCKS if self.allows_block(block))
        return blocks and self.full >= other.full and self.lockstep >= other.lockstep

    @property
    def blocks(self) -> tuple[int, ...]:
        """The blocks of the set."""
        return tuple(block for block in BLOCKS if self.allows_block(block))

    @property
    def usual_block(self) -> int | None:
        """The block if none is named; None for the usual one, 256."""
        blocks = self.blocks
        return None if 256 in blocks else max(b for b in blocks if b < 256 or b == blocks[0])

    def __str__(self) -> str:
        """The words by which `parsed` makes it again."""
        words = [str(block) for block in self._listed()]
        if not words:
            words += ["powers_of_two"] * self.powers
            words += [f"at_least_{self.least}"] * (self.least > 32)
            words += [f"at_most_{self.most}"] * (self.most < 1024)
        words += ["full_blocks"] * self.full + ["lockstep"] * self.lockstep
        return " ".join(words)

    def _listed(self) -> tuple[int, ...]:
        """The blocks, if they are to be listed one by one."""
        return self.blocks if self.only or len(self.blocks) == 1 else ()

    def sentence(self, where: Domain, takes_n: bool = True) -> str:
        """The condition in words, behind "right"."""
        per_thread = where.per_thread
        parts = []
        if only := self._listed():
            blocks = " and ".join(filter(None, [", ".join(map(str, only[:-1])), str(only[-1])]))
            parts.append(f"for blocks of {blocks} threads")
        elif (self.least, self.most) != (32, 1024):
            span = (
                f"of up to {self.most}" if self.least == 32 else
                f"of {self.least} to {self.most}" if self.powers or self.most < 1024 else
                f"of at least {self.least}"
            )  # fmt: skip
            parts.append(f"for blocks {span} threads" + " that are powers of two" * self.powers)
        elif self.powers:
            parts.append("for blocks that are powers of two")
        if self.full and not takes_n:
            each = f"{per_thread} elements" if per_thread > 1 else "an element"
            parts.append(f"where every thread{' of its one block' * where.alone} has {each}")
        elif self.full:
            each = f" ({per_thread} elements per thread)" if per_thread > 1 else ""
            parts.append(f"where n fills its {'one block' if where.alone else 'blocks'}{each}")
        if self.lockstep:
            parts.append("if the 32 lanes of a warp run in lockstep")
        return ", ".join(parts)


def parsed(given: object) -> Condition:
    """A condition by words, as in ``"powers_of_two full_blocks"`` or ``blocks=64,128``."""
    words = re.split(r"[\s,]+", str(given).strip()) if isinstance(given, (str, int)) else None
    if words is None and isinstance(given, Iterable):
        words = [str(word) for word in given]
    found = Condition()
    for word in words or [repr(given)]:
        plain = re.sub(r"^(?:blocks?|sizes)=|^(?=lockstep=yes)|=yes$", "", word)
        bound = re.fullmatch(r"at_(least|most)_(\d+)", plain)
        if plain.isdecimal() and int(plain) in BLOCKS:
            found = replace(found, only=(*found.only, int(plain)))
        elif bound and int(bound[2]) in BLOCKS:
            size = int(bound[2])
            found = replace(found, least=size) if bound[1] == "least" else replace(found, most=size)
        elif plain == "powers_of_two":
            found = replace(found, powers=True)
        elif plain == "full_blocks":
            found = replace(found, full=True)
        elif plain == "lockstep":
            found = replace(found, lockstep=True)
        elif plain not in ("", "any"):
            raise ValueError(f"a condition has words among {_WORDS}, not {word!r}")
    return found


@dataclass(frozen=True)
class Domain:
    """Where a kernel is tried: under a condition, for all sizes or for these."""

    condition: Condition = Condition()
    sizes: tuple[int, ...] = ()
    per_thread: int = 1  # elements that each thread of a block reads at once
    named: tuple[int, ...] = ()  # blocks that the text names
    alone: bool = False  # one block adds up everything
    multiple: int = 1  # of which each size is one: the elements of a vector
    within: bool = False  # n is at most what one block has

    def allows(self, block: int, n: int, condition: Condition | None = None) -> bool:
        """Whether a launch belongs to it, or to what another condition leaves of it."""
        where, part = condition or self.condition, block * self.per_thread
        fills = n == part if self.alone else n % part == 0
        sizes = n in self.sizes if self.sizes else n % self.multiple == 0
        sizes = sizes and (n <= part or not self.within)
        return sizes and where.allows_block(block) and (fills or not where.full)

    def under(self, condition: Condition | None) -> Domain:
        """The same under another condition; as it is for None."""
        return replace(self, condition=condition) if condition is not None else self

    def rounded(self, n: int) -> int:
        """The next multiple of the elements of a vector."""
        return -(-n // self.multiple) * self.multiple

    def nearest(self, block: int, n: int) -> int:
        """A size of whole vectors, and not more than one block has if it is for one."""
        n = self.rounded(n)
        return min(n, block * self.per_thread) if self.within else n

    def fitted(self, block: int, n: int) -> int | None:
        """The size nearest to n that it allows for a block; None if there is none."""
        sizes = [size for size in self.sizes or (self.rounded(n),) if self.allows(block, size)]
        return min(sizes, key=lambda size: abs(size - n), default=None)


def checked(key: str, value: object) -> str:
    """The text of an option out of KEYS."""
    several = isinstance(value, (list, tuple, range))
    text = ",".join(map(str, value)) if several else str(value)  # type: ignore[call-overload]
    text = re.sub(r"[\s,]+", ",", text.strip())
    try:
        if key == "sizes":
            _sizes(text)
        elif parsed(text).full or parsed(text).lockstep or not parsed(text).blocks:
            raise ValueError
    except ValueError:
        forms = _FORMS if key == "blocks" else "full_blocks, or numbers as in 1000,4096"
        raise KernelError(f"{key} must be {forms}, not {text!r}") from None
    return text


def _sizes(text: str) -> tuple[int, ...]:
    if text in ("any", "full_blocks"):
        return ()
    sizes = tuple(int(word) for word in text.split(","))
    if not all(1 <= n <= MOST_ELEMENTS for n in sizes):
        raise ValueError
    return sizes


def domain(
    options: dict[str, str], per_thread: int, named: tuple[int, ...], alone: bool, powers: bool
) -> Domain:
    """Where the options of a kernel say that it is to be right, and its template allows it."""
    found = parsed(options.get("blocks", ""))
    found = replace(
        found, full=options.get("sizes") == "full_blocks", powers=powers or found.powers
    )
    return Domain(found, _sizes(options.get("sizes", "any")), per_thread, named, alone)


# --- the search ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Try:
    """One sum: its launch and numbers, whether it was under lockstep, and whether it was right."""

    block: int
    n: int
    lockstep: bool
    right: bool
    rest: tuple[object, ...] = ()  # grid, dtype and numbers


def candidates(where: Domain, tries: list[Try], lockstep: bool) -> Iterator[Condition]:
    """The conditions of a domain, those of the lockstep that is asked for."""
    own = where.condition
    spans = [replace(own, powers=own.powers or powers, least=max(own.least, least))
             for powers in (False, True) for least in (32, 64, 128, 256)]  # fmt: skip
    sets = [*spans]
    failing = {t.block for t in tries if not t.right}
    tried = sorted({t.block for t in tries})
    below = {block for block, after in itertools.pairwise(tried) if after in failing}
    for size in sorted({*where.named, 128, 256, 512, *below}, reverse=True):
        sets += [
            replace(span, most=size)
            for span in spans
            if span.least < size < own.most and (span.allows_block(size) or size in where.named)
        ]
    sets += [replace(own, only=(size,)) for size in where.named]
    for chosen in sets:
        for full in (own.full,) if own.full or where.sizes else (False, True):
            yield replace(chosen, full=full, lockstep=lockstep)


def without(where: Domain, block: int) -> Domain | None:
    """The same domain with a smaller set of blocks, which lacks this one."""
    own = where.condition
    if block & (block - 1):
        found = replace(own, powers=True)
    elif block <= 128:
        found = replace(own, least=max(own.least, 2 * block))
    else:
        found = replace(own, most=min(own.most, block // 2))
    return replace(where, condition=found) if found.blocks else None


def weakest(where: Domain, tries: list[Try], lockstep: bool) -> Condition | None:
    """The condition that allows most of the tries, and no wrong one, of those with enough left."""
    best: tuple[int, Condition] | None = None
    for condition in candidates(where, tries, lockstep):
        left: list[Try] = []
        excluded: list[Try] = []
        for t in tries:
            if t.lockstep == lockstep:
                (left if where.allows(t.block, t.n, condition) else excluded).append(t)
        if not left or not all(t.right for t in left) or not _is_enough(where, condition, left):
            continue
        if sum(not t.right for t in excluded) * _SEPARATES < len(excluded):
            continue
        if not lockstep and _depends_on_order(where, condition, tries):
            continue
        if best is None or len(left) > best[0]:
            best = len(left), condition
    return best[1] if best else None


def _depends_on_order(where: Domain, condition: Condition, tries: list[Try]) -> bool:
    """Whether a sum that the condition excludes is right in one order of threads, wrong in another.

    An order of threads is no condition: such a sum lacks a barrier or an atomic.
    """
    seen: dict[tuple[object, ...], bool] = {}
    for t in tries:
        if t.lockstep or where.allows(t.block, t.n, condition):
            continue
        if seen.setdefault((t.block, t.n, t.rest), t.right) != t.right:
            return True
    return False


_LARGE = 4096  # elements
_SEPARATES = 3  # one in three sums that a condition excludes is wrong, or it is no explanation


def _is_enough(where: Domain, condition: Condition, left: list[Try]) -> bool:
    """Whether two blocks of 64 threads and more are left, or those of the text, and large n."""
    blocks = {t.block for t in left if t.block >= 64}
    named = bool(condition.only) or condition.most in where.named
    return (len(blocks) > 1 or named) and (
        bool(where.alone or where.sizes or where.within) or any(t.n >= _LARGE for t in left)
    )
