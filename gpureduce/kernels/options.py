"""How to launch a kernel: as given, as a comment in its text says, or as its code shows."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from gpureduce import _host
from gpureduce.kernels import conditions
from gpureduce.kernels.signature import ATOMIC, TARGET, Signature
from gpureduce.kernels.source_text import (
    KernelError,
    closing,
    constants,
    number,
    without_directives,
    words_in,
)  # fmt: skip

_DIGITS = (_host.ONE, _host.TWO, _host.FOUR, _host.EIGHT, _host.SIXTEEN, _host.THIRTY_TWO)
PER_THREAD = (*range(1, 9), 10, 12, 16, 20, 24, 32)
_ELEMENTS = {str(count): sum(digit for i, digit in enumerate(_DIGITS) if count & 1 << i)
             for count in PER_THREAD} | {"many": _host.MANY}  # fmt: skip
_SHARED = {"none": 0, "thread": _host.SHARED_THREADS,
           "twice": _host.SHARED_THREADS | _host.SHARED_TWICE, "warp": _host.SHARED_WARPS,
           "ring": _host.RING}  # fmt: skip
_SCRATCH = {"thread": _host.WORK_ELEMENTS, "block": _host.WORK_BLOCKS,
            "marked": _host.MARKED_BLOCKS}  # fmt: skip
OPTIONS: dict[str, tuple[str, ...]] = {
    "elements": tuple(_ELEMENTS),
    "shared": tuple(_SHARED),
    "finishes": ("yes", "no"),
    "scratch": tuple(_SCRATCH),
    "alone": ("yes", "no"),
    "operation": ("sum", "cumsum"),
}
# Of `check`, on the command line and behind %%kernel.
OF_CHECK: dict[str, dict[str, Any]] = {
    "--dtype": {"nargs": "+", "metavar": "DTYPE", "help":
        "the elements' dtypes (default: int32 and float32, or the kernel's own)"},
    **{f"--{option}": {"choices": values, "help": "as in gpureduce.kernel"}
       for option, values in OPTIONS.items()},
    "--blocks": {"help":
        "where it is to be right: 64,128,256 or powers_of_two, at_least_64, at_most_256"},
    "--sizes": {"help": "where it is to be right: full_blocks, or 1000,4096"},
    "--assume": {"default": "", "metavar": "CONDITION", "help":
        "a kernel that is right under this condition passes, as in 'powers_of_two full_blocks "
        "lockstep'"},
    "--seed": {"type": int, "default": 0, "help": "draws some of the sizes (default: 0)"},
    "--no-hint": {"action": "store_true", "help": "do not tell what to try next"},
}  # fmt: skip
_NEAR = 200  # letters, in which a product ends
_COMMENT = re.compile(r"gpureduce:((?:\s*\w+=[\w,]+)+)")


def checked_options(options: Mapping[str, object]) -> dict[str, str]:
    """The options that are given, as text. Raises an error for one that no kernel has."""
    found: dict[str, str] = {}
    for key, value in options.items():
        if value is None:
            continue
        text = ("yes" if value else "no") if isinstance(value, bool) else str(value)
        if key in conditions.KEYS:
            found[key] = conditions.checked(key, value)
            continue
        if key not in OPTIONS:
            names = ", ".join([*OPTIONS, *conditions.KEYS])
            raise KernelError(f"a kernel has no option {key!r}; there is {names}")
        if text not in OPTIONS[key]:
            raise KernelError(f"{key} must be one of {', '.join(OPTIONS[key])}, not {text!r}")
        found[key] = text
    return found


def options_of(text: str, signature: Signature, given: Mapping[str, object]) -> dict[str, str]:
    """How to launch a kernel: as given, else by a comment in the text, else by the code itself."""
    found = _guessed(signature) | _told(text) | checked_options(given)
    if found.get("operation") == "cumsum":
        if found["shared"] == "thread" and _scans_twice(signature):
            found["shared"] = "twice"
        found["finishes"] = "yes"
        if found["elements"] == "many":
            raise KernelError(
                f"{signature.name} has a grid-stride loop, but in a kernel for running sums each "
                "thread has a fixed number of elements: pass it, such as elements=1"
            )
    if not signature.takes_n and found["sizes"] == "any":
        found["sizes"] = "full_blocks"
    return found


def _told(text: str) -> dict[str, str]:
    """The options in comments of a text."""
    told: dict[str, object] = {}
    for comment in _COMMENT.finditer(text):
        told |= dict(part.split("=") for part in comment[1].split())
    return checked_options(told)


def scans(text: str, operation: object) -> bool:
    """Whether a kernel makes running sums: as given, or as a comment says."""
    return (_told(text) | checked_options({"operation": operation})).get("operation") == "cumsum"


def per_block(code: str) -> tuple[int, tuple[int, ...]]:
    """The elements that each thread of a block reads at once, and the block sizes of the text.

    They are the factors of ``blockIdx.x``, as in ``blockIdx.x * (blockDim.x * 2)``, and constants
    that stand for the block or for the size of an array in shared memory.
    """
    known = constants(code)
    sizes = {value for value in known.values() if _is_block(value) and value > 32}  # 32: a warp
    threads = 1
    product = r"\b(\w+)\s*=\s*(\w+\s*\*\s*blockDim\s*\.\s*x|blockDim\s*\.\s*x\s*\*\s*\w+)\s*[;,]"
    tiles = dict(re.findall(product, code))
    for index in re.finditer(r"\bblockIdx\s{0,9}\.\s{0,9}x\b", code):
        product = _product_around(code, index.start())
        product = re.sub(r"\w+", lambda one: re.sub(r"\s", "", tiles.get(one[0], one[0])), product)
        factors = [number(part, known) for part in product.split("*")]
        whole = [factor for factor in factors if factor is not None]
        if "blockDim.x" not in product:
            sizes.update(filter(_is_block, whole))
            whole = [factor for factor in whole if not _is_block(factor)]
        threads = max(threads, math.prod(whole))
    for found in re.finditer(r"__shared__[^;]{0,200}?\[([^\[\];]{1,99})\]\s{0,99};", code):
        value = number(found[1], known)
        if value is not None and value > 32:
            sizes.add(min(value // 32 * 32, 1024))
        elif value is not None and value >= 4 and found[1].strip() in known:  # one for each warp
            sizes.add(32 * value)
    return threads if threads in PER_THREAD else 1, tuple(sorted(sizes))


def _product_around(code: str, at: int) -> str:
    """The product that a place of the code belongs to, without brackets and gaps."""
    before = re.search(r"[\w.\s*()]*$", code[max(0, at - _NEAR) : at])
    after = re.match(r"[\w.\s*()]*", code[at : at + _NEAR])
    both = (before[0] if before else "") + (after[0] if after else "")
    return re.sub(r"[()\s]", "", both)


def _is_block(value: int) -> bool:
    return 32 <= value <= 1024 and value % 32 == 0


def _guessed(signature: Signature) -> dict[str, str]:
    found: dict[str, str] = {}
    flat = r"\bblockIdx\.y\s*\*\s*gridDim\.x|\bgridDim\.x\s*\*\s*blockIdx\.y"
    code = _without_bounds(re.sub(flat, "0", signature.code))
    cast = r"(?:\w+\s*\(\s*|\(\s*\w+\s*\)\s*)?"
    stride = rf"gridDim\s*\.\s*x[\s)]*\*|(?:[*/]|\+=)\s*{cast}gridDim|this_grid\s*\("
    each = per_block(code)[0] * signature.vector
    threads = str(each if each in PER_THREAD else signature.vector)
    strides = re.findall(r"\b(\w{1,40})\s{0,9}=[^=;]{0,200}\bgridDim\b", code)
    named = "|".join(map(re.escape, dict.fromkeys(strides)))
    by_name = named and re.search(rf"\+=[^;]{{0,200}}\b(?:{named})\b", code)
    found["elements"] = "many" if by_name or re.search(stride, code) else threads
    code = signature.code
    dynamic = re.search(r"shared_array\s*<|extern\s[\w\s]{0,60}\b__shared__|\bblock_sum\s*\(", code)
    found["shared"] = "thread" if dynamic else "none"
    if _shares_twice(code, signature):
        found["shared"] = "twice"
    if not re.search(r"\bblockIdx\b|\bgridDim\b|\bthis_(?:grid|cluster)\b", code):
        found["alone"] = "yes"
    one = TARGET + r"{0}\s*[-+]?=|\b{0}\s*\[\s*0\s*\]|" + ATOMIC + r"{0}\b"
    if "ticket" in signature.roles or _has(one, signature):
        found["finishes"] = "yes"
    if _has(_EACH, signature) and not ("finishes" in found and _knows_all_blocks(signature)):
        found["finishes"] = "no"
    bound = re.search(rf"__launch_bounds__\s*\(([^,()]*)[^()]*\)\s*\w*\s*{signature.name}\b", code)
    most = number(bound[1].strip(), constants(code)) if bound else None
    if most is not None and 32 <= most < 1024:
        found["blocks"] = f"at_most_{most // 32 * 32}"
    if not signature.takes_n:
        found["sizes"] = str(fixed_size(code, signature, conditions.MOST_ELEMENTS) or "full_blocks")
    if "work" in signature.roles:
        marked = signature.type_of("work").startswith("Marked")
        found["scratch"] = "marked" if marked else "block"
    return found


_TERM = r"(?:\(\s*\w{1,20}\s*\)\s*)?(?:[\w.]+|\([^()]{1,60}\))"  # perhaps with a cast
_PRODUCT = rf"{_TERM}(?:\s*[*/]\s*{_TERM})*"
_MOST_NAMES = 8  # of products
_COMPARES = r"(?<![<>])(?:[<>]=?|[=!]=)(?![<>=])"


def _without_bounds(code: str) -> str:
    """The text without bounds of loops over partial sums, as in ``b < gridDim.x * warps``.

    They are products of ``gridDim.x`` that stand in comparisons, or names of such products.
    """

    def left(found: re.Match[str]) -> str:
        counts = "gridDim" in found[2] and not re.search(r"/\s*\(?\s*gridDim", found[2])
        return f"{found[1]}0" if counts else found[0]

    code = re.sub(rf"({_COMPARES}\s*)({_PRODUCT})", left, code)
    code = re.sub(rf"([(;&|]\s*)({_PRODUCT})(?=\s*{_COMPARES})", left, code)
    code = re.sub(rf"(=\s*)({_PRODUCT})(?=\s*-\s*1\b)", left, code)
    named = dict(re.findall(rf"\b(\w{{1,40}})\s{{0,9}}=\s*({_PRODUCT})\s*[;,]", code))
    names = [name for name, value in named.items() if "gridDim" in value][:_MOST_NAMES]
    dense = re.sub(r"\s+", " ", code) if names else ""
    for name in names:
        others = rf"(?<!\w)(?<!< )(?<!<= )(?<!!= ){name}\b(?!\s*(?:=[^=]|-\s*1\b|{_COMPARES}))"
        if not re.search(others, dense):
            code = re.sub(rf"(\b{name}\s*=\s*)({_PRODUCT})", left, code)
    return code


_BOUND = re.compile(
    rf"\b(\w{{1,40}})(?:\s*\+[\w\s.]{{1,40}})?\)?\s*{_COMPARES}\s*(\w{{1,40}}(?:\s*-\s*1\b)?)"
)
_REVERSED = re.compile(rf"\b(\w{{1,40}})\s*{_COMPARES}\s*\(?\s*(\w{{1,40}})\b")


def fixed_size(code: str, signature: Signature, most: int) -> int | None:
    """The constant that bounds the indexes of the elements, as in ``if (i < N) ... in[i]``."""
    known, blocks = constants(code), per_block(code)[1]
    of_grid = "blockIdx" if "blockIdx" in code else "threadIdx"  # and indexes that depend on it
    for _ in range(2):
        gets = rf"\b(\w{{1,40}})\s{{0,9}}=(?=[^=;,][^;,]{{0,200}}\b(?:{of_grid})\b)"
        names = dict.fromkeys(re.findall(gets, code))
        of_grid = "|".join([of_grid.partition("|")[0], *list(names)[:_MOST_NAMES]])
    pairs = [*_BOUND.findall(code), *((index, n) for n, index in _REVERSED.findall(code))]
    for index, bound in pairs:
        n = number(bound, known)
        n = n + 1 if n is not None and "-" in bound else n
        if not n or not 32 <= n <= most or n in blocks:
            continue
        reads = rf"\b{signature.named('in')}\s*\[[^\[\]]{{0,60}}\b{index}\b"
        if re.fullmatch(of_grid, index) and re.search(reads, code):
            return n
    return None


def _shares_twice(code: str, signature: Signature) -> bool:
    """Whether dynamic shared memory has a second part, or cells of twice an accumulator's bytes."""
    dynamic = re.search(
        r"\bextern\s{1,9}(?=[\w\s]{0,60}\b__shared__)([\w\s()]{0,99}?)(\w{1,60})\s{0,9}\[", code
    )
    if not dynamic:
        return False
    same = re.findall(rf"\*\s*(\w+)\s*=\s*{dynamic[2]}\s*[;,]", code)
    base = rf"\b(?:{'|'.join([dynamic[2], *same])})"
    second = rf"=[^;=]{{0,60}}(?:&\s*{base}\s*\[|{base}\s*\+)\s*blockDim\s*\.\s*x\s*[;,\])]"
    sizes = "|".join(
        ["blockDim\\s*\\.\\s*x", *re.findall(r"\b(\w+)\s*=\s*blockDim\s*\.\s*x\s*[,;]", code)]
    )
    second += rf"|{base}\s*\[\s*\w+\s*\*\s*(?:{sizes})\s*\+"  # the other one of two buffers
    wide = re.search(r"\b(?:double|long long|u?int64_t|u?(?:int|float)2)\b", dynamic[1])
    small = (signature.pair or ("", ""))[1] in ("f32", "u32")
    return bool(re.search(second, code) or (wide and small))


_GAPS = r"\b(\w+)\s*\+=?\s*\(*\s*\1\s*\)*\s*(?:/|>>)"  # as in k + k / 32, for few bank conflicts


def _scans_twice(signature: Signature) -> bool:
    """Whether a scan in shared memory has two elements for each thread, or two buffers."""
    n, size = signature.named("n") or "n", r"blockDim\s*\.\s*x"
    halves = rf"\b{n}\s*(?:/\s*2|>>=?\s*1)\b|\b2\s*\*\s*{size}|{size}\s*(?:\*\s*2|<<\s*1)\b"
    buffers = rf"\[\s*\w+\s*\*\s*{n}\s*\+"
    return bool(re.search(f"{halves}|{buffers}", signature.code))


def _has_tiles(signature: Signature) -> bool:
    """Whether one block goes through all elements, tile by tile: a loop up to n with a barrier."""
    n, code = signature.named("n"), signature.code
    if not n or {"work", "ticket"} & {*signature.roles}:
        return False
    loops = re.finditer(rf"\bfor\s*\([^;]*;\s*(\w+)\s*<\s*{n}\s*;\s*\1\s*\+=[^{{;]*\{{", code)
    return any("sync" in code[one.end() : closing(code, one.end() - 1)] for one in loops)


# A sum for each block, behind the name of the sums.
_EACH = r"\b{0}\s*\[(?!\s*0\s*\])|\*\s*\(\s*{0}\s*\+|=\s*&?\s*{0}\s*\+\s*blockIdx"
_GRID = r"\bthis_grid\s*\(|\bgrid_group\b"
_DEVICE_VARIABLE = r"\b__device__\b([\w\s,={}<>:]{1,120});"


def _knows_all_blocks(signature: Signature) -> bool:
    """Whether a block may know that all blocks are done: by a grid barrier, or by counting them."""
    variables = " ".join(re.findall(_DEVICE_VARIABLE, signature.code))
    # Beside declarations, updates whose results are left, and stores.
    unused = rf"\b__device__\b[^;{{}}()]*;|[;{{}})]\s*{ATOMIC}\w+\b[^;]*;|\b\w+\s*=(?!=)"
    used = words_in(re.sub(unused, " ; ", without_directives(signature.code)))
    counters = [name for name in re.findall(r"[A-Za-z_]\w*", variables) if name in used]
    names = rf"\b(?:{'|'.join(counters)})\b"
    counted = counters and re.search(rf"{ATOMIC}{names}|{names}\s*\.\s*fetch_", signature.code)
    return "ticket" in signature.roles or bool(counted or re.search(_GRID, signature.code))


def _has(pattern: str, signature: Signature) -> bool:
    """Whether the code has a pattern of the sums, by one of their names."""
    names = [(signature.named("out") or "out", signature.code), *signature.sums]
    return any(re.search(pattern.replace("{0}", name), where) for name, where in names)


def traits_of(signature: Signature, options: Mapping[str, str]) -> int:
    """The flags by which the engine launches the kernel (csrc/shared/registry.h)."""
    code, name, out = signature.code, signature.name, signature.named("out")
    if "finishes" not in options:
        if len(re.findall(rf"\b{out}\b", code)) == 1:
            raise KernelError(f"{name} stores no sum: its code never uses {out}")
        raise KernelError(
            f"it is unclear whether {name} stores one sum in {out}[0] or one per block: pass "
            "finishes=True or finishes=False, or write in the text: // gpureduce: finishes=yes"
        )
    alone = options.get("alone") == "yes"
    traits = _ELEMENTS[options["elements"]]
    if alone and options.get("operation") != "cumsum":
        traits = _host.MANY | _host.ALONE
    elif options.get("operation") == "cumsum" and re.search(_GAPS, code):
        traits |= _host.SHARED_WARPS if options["shared"] in ("thread", "twice") else 0
    if options.get("operation") == "cumsum" and alone and _has_tiles(signature):
        traits |= _host.ALONE
    traits |= _SHARED[options["shared"]]
    finishes = options["finishes"] == "yes"
    partials = not finishes or (_has(_EACH, signature) and _knows_all_blocks(signature))
    traits |= (_host.FINISHES if finishes else 0) | (_host.PARTIALS if partials else 0)
    traits |= _SCRATCH[options["scratch"]] if "work" in signature.roles else 0
    traits |= _host.TICKET if "ticket" in signature.roles else 0
    traits |= _host.BLOCK_TEMPLATE if signature.block else 0
    adds = ATOMIC + r"{0}\b|" + TARGET + r"{0}\s*[-+]=|\b{0}\s*\[[^\[\]]*\]\s*[-+]="
    adds += "|" + TARGET + r"{0}\s*=[^=;][^;]{0,200}" + TARGET + r"{0}\b"
    adds += r"|\b{0}\s*\[\s*0\s*\]\s*=[^=;][^;]{0,200}\b{0}\s*\[\s*0\s*\]"
    if _has(adds, signature):
        traits |= _host.ZEROED | _host.UNORDERED
    if re.search(_GRID, code):
        traits |= _host.COOPERATIVE
    if re.search(r"\bthis_cluster\s*\(|\bcluster_group\b", code):
        traits |= _host.CLUSTER
    if re.search(r"\bwait_for_earlier_kernels\s*\(", code):
        traits |= _host.OVERLAPS
    return traits
