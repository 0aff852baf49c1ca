"""Reads the head of a kernel: its name, its template and its parameters, and what they ask for.

Only the head and a few words of the body are read. The compiler checks the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpureduce import _host

FORMS = (
    "template <typename In, typename Acc> __global__ void NAME(In in, Acc *out, size_t n) or "
    "__global__ void NAME(const float *in, float *out, size_t n)"
)
# The element and accumulator types of kernels without a template, as csrc/shared/dtypes.h has them.
_LOADS = {
    "f32": "float",
    "f64": "double",
    "f16": "half|__half",
    "bf16": "__nv_bfloat16|nv_bfloat16",
    "i8": "int8_t|signed char",
    "u8": "uint8_t|unsigned char",
    "i16": "int16_t|short",
    "u16": "uint16_t|unsigned short",
    "i32": "int|int32_t",
    "u32": "unsigned|unsigned int|uint32_t",
    "u64": "unsigned long long|uint64_t|size_t|long long|int64_t|unsigned long|long",
}
_ACCS = {"f32": "float", "f64": "double", "u32": "int|int32_t|" + _LOADS["u32"],
         "u64": _LOADS["u64"]}  # fmt: skip
MOST_LETTERS = 1 << 20  # of a text
PAIRS = {
    "u64": ("i8", "u8", "i16", "u16", "i32", "u32", "u64"),
    "u32": ("u32",),
    "f32": ("f16", "bf16", "f32"),
    "f64": ("f32", "f64"),
}


class KernelError(ValueError):
    """A kernel that cannot be compiled: its form is wrong, or the compiler refuses it.

    The message names the kernel's own lines.

    >>> import gpureduce
    >>> try:
    ...     gpureduce.kernel("__global__ void f(float *out) {}")
    ... except gpureduce.KernelError as error:
    ...     print(str(error).partition(", as in")[0])
    f has 1 parameter; a kernel takes in, out and n, then scratch memory and a ticket
    """

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the message, since the error is in the kernel's lines."""
        return [f"{type(self).__name__}: {self}"]


@dataclass(frozen=True)
class Signature:
    """The head of a kernel.

    `types` is the number of type parameters of its template (0 to 2). `block` tells whether the
    block size is a template parameter, too. `pair` are the element and accumulator types of a
    kernel without type parameters.
    """

    name: str
    line: int
    types: int
    block: bool
    parameters: tuple[tuple[str, str], ...]
    pair: tuple[str, str] | None

    @property
    def out(self) -> str:
        """The name of the parameter for the sums."""
        return self.parameters[1][1]


def without_comments(text: str) -> str:
    """The text with comments and strings blanked out. Every line keeps its number."""

    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", found[0])

    # A comment or string that is not closed ends with the text or the line: otherwise the search
    # would start again at each opening mark.
    pattern = r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"?'
    pattern += r"|(?<!\w)'(?:\\.|[^'\\\n])*'?"  # not a digit separator
    return re.sub(pattern, blank, text, flags=re.S)


_BOUNDS = r"(?:__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)\s*)?"
_HEAD = re.compile(rf"__global__\s+{_BOUNDS}void\s+{_BOUNDS}(\w+)\s*\(")
_TEMPLATE = re.compile(r"template\s*<([^<>]*)>\s*(?:static\s+)?$")


def _closing(code: str, start: int) -> int:
    """The index of the parenthesis that closes the one before `start`."""
    depth = 1
    for i in range(start, len(code)):
        depth += {"(": 1, ")": -1}.get(code[i], 0)
        if not depth:
            return i
    return len(code)


def _split(text: str) -> list[str]:
    """Parameters, split at the commas that are in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"<": 1, "(": 1, "[": 1, ">": -1, ")": -1, "]": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [" ".join(part.split()) for part in parts if part.strip()]


def _parameter(text: str) -> tuple[str, str]:
    """A parameter's type and name."""
    text = re.sub(r"\b__restrict(__)?\b", " ", text.partition("=")[0]).strip()
    text = re.sub(r"\b(\w+)\s*\[\s*\d*\s*\]$", r"* \1", text)  # an array parameter is a pointer
    text = re.sub(r"\s*\*\s*", " * ", text).rstrip()
    letters = re.match(r"\w*", text[::-1])
    name = letters[0][::-1] if letters else ""
    kind = text.removesuffix(name)
    if not kind or name in ("int", "unsigned", "long", "size_t", "float", "double"):
        kind, name = text, ""
    return " ".join(kind.split()), name


def _template(code: str, start: int, name: str) -> tuple[int, bool]:
    """The number of type parameters of a template, and whether the block is a parameter."""
    before = re.sub(r"(extern|static|inline)\s*$", "", code[:start])  # "C" is blanked out
    found = _TEMPLATE.search(before)
    if not found:
        return 0, False
    parts = _split(found[1])
    types = sum(part.split()[0] in ("typename", "class") for part in parts)
    rest = parts[types:]
    blocks = [part for part in rest if re.match(r"(unsigned|int|size_t|unsigned int)\b", part)]
    if types > 2 or len(rest) > 1 or len(blocks) != len(rest):
        raise KernelError(
            f"the template of {name} has parameters that gpureduce does not know: it takes "
            "typename In and typename Acc (or one type for both), and then the block size, as in "
            "template <typename In, typename Acc, unsigned block>"
        )
    return types, bool(rest)


def _type_of(kind: str, known: dict[str, str], name: str, what: str) -> str:
    plain = re.sub(r"\b(const|volatile)\b|\*", " ", kind)
    plain = " ".join(plain.split())
    for tag, words in known.items():
        if plain in words.split("|"):
            return tag
    allowed = [words.split("|")[0] for words in known.values()]
    raise KernelError(
        f"{name} has {what} of type {plain or kind}; without a template they are one of "
        f"{', '.join(allowed)}"
    )


def _pair(name: str, parameters: list[tuple[str, str]]) -> tuple[str, str]:
    """The element and accumulator types of a kernel without type parameters."""
    if "*" not in parameters[0][0] or "*" not in parameters[1][0]:
        raise KernelError(
            f"{name} takes {parameters[0][0]} and {parameters[1][0]}; its first two parameters are "
            f"the elements and the sums, as in {FORMS}"
        )
    load = _type_of(parameters[0][0], _LOADS, name, "elements")
    acc = _type_of(parameters[1][0], _ACCS, name, "sums")
    load = "u32" if (load, acc) == ("i32", "u32") else load
    if load not in PAIRS[acc]:
        raise KernelError(
            f"{name} adds up {parameters[0][0]} in {parameters[1][0]}, which is no accumulator for "
            "such elements: integers are added up in 64 bits, or 32-bit ones in 32; floats in "
            "float or double"
        )
    return load, acc


def names_in(text: str) -> list[str]:
    """The names of the kernels in the text."""
    return [head[1] for head in _HEAD.finditer(without_comments(text))]


def read(text: str, name: str | None = None) -> Signature:
    """The head of the kernel with this name, or of the only kernel in the text."""
    if len(text) > MOST_LETTERS:
        raise KernelError(
            f"the text has {len(text)} characters, and at most {MOST_LETTERS} are read"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise KernelError(f"the text has {text[error.start]!r}, which UTF-8 cannot hold") from None
    code = without_comments(text)
    heads = list(_HEAD.finditer(code))
    names = [head[1] for head in heads]
    if not heads:
        raise KernelError(f"there is no kernel in the text; a kernel begins as {FORMS}")
    if name is None and len(heads) > 1:
        raise KernelError(
            f"there are {len(heads)} kernels in the text: name one of {', '.join(names)}"
        )
    if name is not None and name not in names:
        raise KernelError(f"there is no kernel {name!r} in the text; there is {', '.join(names)}")
    head = heads[names.index(name) if name else 0]
    _check_alone(code)
    kernel = head[1]
    parts = _split(code[head.end() : _closing(code, head.end())])
    if not 3 <= len(parts) <= 5:
        raise KernelError(
            f"{kernel} has {len(parts)} parameter{'s' * (len(parts) != 1)}; a kernel takes in, out "
            f"and n, then scratch memory and a ticket, as in {FORMS}"
        )
    parameters = [_parameter(part) for part in parts]
    types, block = _template(code, head.start(), kernel)
    pair = None if types else _pair(kernel, parameters)
    line = code.count("\n", 0, head.start()) + 1
    return Signature(kernel, line, types, block, tuple(parameters), pair)


def _check_alone(code: str) -> None:
    for pattern, what in ((r"<<<", "a launch"), (r"\bint\s+main\s*\(", "a main()")):
        found = re.search(pattern, code)
        if found:
            line = code.count("\n", 0, found.start()) + 1
            raise KernelError(
                f"line {line} has {what}: give the kernel and its device functions alone; "
                "gpureduce launches it"
            )


_DYNAMIC = re.compile(
    r"extern\s+__shared__\s+((?:[\w:<>]+\s+){0,8}?[\w:<>]+)\s+(\w+)\s*\[\s*\]\s*;"
)


_SPECIFIERS = re.compile(
    r"(?:\b(?:static|inline|constexpr|__host__|__device__|__forceinline__|__noinline__)\b\s*)+"
)


def for_the_emulator(text: str) -> str:
    """The text as the emulator needs it, on the same lines.

    ``extern __shared__ T name[];`` becomes a pointer to the block's shared memory. ``inline`` is
    left out beside ``__device__``, which is ``inline`` itself there.
    """
    parts: list[str] = []
    at = 0
    for found in _SPECIFIERS.finditer(without_comments(text)):
        if "__device__" in found[0]:
            plain = re.sub(r"\binline\b", " " * len("inline"), found[0])
            parts += [text[at : found.start()], plain]
            at = found.end()
    text = "".join([*parts, text[at:]])
    code, parts, at = without_comments(text), [], 0
    for found in _DYNAMIC.finditer(code):
        line = code.count("\n", 0, found.start()) + 1
        if code.count("{", 0, found.start()) == code.count("}", 0, found.start()):
            raise KernelError(
                f"line {line} declares {found[2]} outside the kernel: move the line into it"
            )
        kind = re.sub(r"__align__\s*\(\s*\d+\s*\)", "", found[1])
        newlines = "\n" * found[0].count("\n")
        parts += [
            text[at : found.start()],
            f"{kind} *{found[2]} = shared_array<{kind}>();{newlines}",
        ]
        at = found.end()
    return "".join([*parts, text[at:]])


# --- what a kernel asks for ----------------------------------------------------------------------

_ELEMENTS = {"1": _host.ONE, "2": _host.TWO, "many": _host.MANY}
_SHARED = {"none": 0, "thread": _host.SHARED_THREADS, "warp": _host.SHARED_WARPS,
           "ring": _host.RING}  # fmt: skip
_SCRATCH = {"thread": _host.WORK_ELEMENTS, "block": _host.WORK_BLOCKS,
            "marked": _host.MARKED_BLOCKS}  # fmt: skip
OPTIONS: dict[str, tuple[str, ...]] = {
    "elements": tuple(_ELEMENTS),
    "shared": tuple(_SHARED),
    "finishes": ("yes", "no"),
    "scratch": tuple(_SCRATCH),
    "alone": ("yes", "no"),
}
# An atomic on what follows, possibly behind a cast.
_ATOMIC = r"\batomic\w+\s*\(\s*(?:\([^()]*\)\s*|reinterpret_cast\s*<[^<>]*>\s*\(\s*)?(?:&\s*)?"
_COMMENT = re.compile(r"gpureduce:((?:\s*\w+=\w+)+)")


def checked_options(options: dict[str, object]) -> dict[str, str]:
    """The options that are given, as text. Raises an error for one that no kernel has."""
    found: dict[str, str] = {}
    for key, value in options.items():
        if value is None:
            continue
        text = ("yes" if value else "no") if isinstance(value, bool) else str(value)
        if key not in OPTIONS:
            raise KernelError(f"a kernel has no option {key!r}; there is {', '.join(OPTIONS)}")
        if text not in OPTIONS[key]:
            raise KernelError(f"{key} must be one of {', '.join(OPTIONS[key])}, not {text!r}")
        found[key] = text
    return found


def options_of(text: str, signature: Signature, given: dict[str, object]) -> dict[str, str]:
    """How to launch a kernel: as given, else by a comment in the text, else by the code itself."""
    told: dict[str, object] = {}
    for comment in _COMMENT.finditer(text):
        told |= dict(part.split("=") for part in comment[1].split())
    code = without_comments(text)
    return _guessed(code, signature) | checked_options(told) | checked_options(given)


def _guessed(code: str, signature: Signature) -> dict[str, str]:
    out, found = re.escape(signature.out or "out"), {}
    cast = r"(?:\w+\s*\(\s*|\(\s*\w+\s*\)\s*)?"
    stride = rf"gridDim\s*\.\s*x[\s)]*\*|(?:[*/]|\+=)\s*{cast}gridDim|this_grid\s*\("
    twice = r"(blockDim\s*\.\s*x|\bblock)\s*\*\s*2\b|\b2u?\s*\*\s*(blockDim\s*\.\s*x|block\b)"
    found["elements"] = (
        "many" if re.search(stride, code) else "2" if re.search(twice, code) else "1"
    )
    dynamic = re.search(r"shared_array\s*<|extern\s+__shared__|\bblock_sum\s*\(", code)
    found["shared"] = "thread" if dynamic else "none"
    last = len(signature.parameters) == 5
    one = rf"\*\s*{out}\s*[-+]?=|\b{out}\s*\[\s*0\s*\]|{_ATOMIC}{out}\b"
    each = rf"\b{out}\s*\[(?!\s*0\s*\])"
    if last or re.search(one, code):
        found["finishes"] = "yes"
    if re.search(each, code):
        found["finishes"] = "no"
    if len(signature.parameters) > 3:
        marked = signature.parameters[3][0].startswith("Marked")
        found["scratch"] = "marked" if marked else "block"
    return found


def traits_of(text: str, signature: Signature, options: dict[str, str]) -> int:
    """The flags by which the engine launches the kernel (csrc/shared/registry.h)."""
    code, name = without_comments(text), signature.name
    if "finishes" not in options:
        raise KernelError(
            f"it does not show whether {name} leaves one sum in {signature.out}[0] or one for each "
            "block: say finishes=True or finishes=False, or in the text: // gpureduce: finishes=yes"
        )
    if len(signature.parameters) > 3 and "scratch" not in options:
        raise KernelError(f"{name} takes scratch memory: say scratch='block' or scratch='thread'")
    alone = options.get("alone") == "yes"
    traits = _host.MANY | _host.ALONE if alone else _ELEMENTS[options["elements"]]
    traits |= _SHARED[options["shared"]]
    traits |= _host.FINISHES if options["finishes"] == "yes" else _host.PARTIALS
    traits |= _SCRATCH[options["scratch"]] if len(signature.parameters) > 3 else 0
    traits |= _host.TICKET if len(signature.parameters) > 4 else 0
    traits |= _host.BLOCK_TEMPLATE if signature.block else 0
    out = re.escape(signature.out or "out")
    if re.search(rf"{_ATOMIC}{out}\b|\*\s*{out}\s*[-+]=", code):
        traits |= _host.ZEROED | _host.UNORDERED
    if re.search(r"\bthis_grid\s*\(|\bgrid_group\b", code):
        traits |= _host.COOPERATIVE
    if re.search(r"\bthis_cluster\s*\(|\bcluster_group\b", code):
        traits |= _host.CLUSTER
    if re.search(r"\bwait_for_earlier_kernels\s*\(", code):
        traits |= _host.OVERLAPS
    shared = re.finditer(r"(extern\s+)?\b__shared__", code)
    static = next((found for found in shared if not found[1]), None)
    if static and traits & (_host.COOPERATIVE | _host.CLUSTER):
        line = code.count("\n", 0, static.end()) + 1
        raise KernelError(
            f"line {line} has a __shared__ variable, and {name} synchronizes several blocks: "
            "such a kernel takes its shared memory from shared_array<Acc>() or extern __shared__"
        )
    return traits
