"""Reads the head of a kernel: its name, its template, and what each of its parameters is for.

Only the head and a few words of the body are read. The compiler checks the rest.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpureduce.kernels.macros import expanded
from gpureduce.kernels.source_text import (
    Block,
    KernelError,
    NotASum,
    aliases,
    closing,
    constants,
    functions,
    line_at,
    number,
    own_code,
    split,
    without_comments,
)  # fmt: skip

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
_DTYPES = {"float": "float32", "double": "float64", "int": "int32", "unsigned": "uint32",
           "unsigned int": "uint32"}  # fmt: skip
MOST_LETTERS = 1 << 20  # of a text
_INTEGERS = ("i8", "u8", "i16", "u16", "i32", "u32")
PAIRS = {
    "u64": (*_INTEGERS, "u64"),
    "u32": ("i8", "u8", "i16", "u16", "u32"),
    "f32": (*_INTEGERS, "f16", "bf16", "f32"),
    "f64": (*_INTEGERS, "f32", "f64"),
}
ROLES = ("in", "out", "n", "work", "ticket")  # in the order of our own kernels' parameters
LAUNCH = {"block": "blockDim.x", "grid": "gridDim.x", "threads": "(gridDim.x * blockDim.x)"}


@dataclass(frozen=True)
class Parameter:
    """A parameter: its type, its name, and its role: one of ROLES, or of LAUNCH."""

    type: str
    name: str
    role: str = ""


@dataclass(frozen=True)
class Signature:
    """The head of a kernel.

    `template` has what each parameter of its template is: ``"In"``, ``"Acc"``, ``"block"``,
    ``"flag"``, or a number. `constants` are the names of these numbers with their values.
    `parameters` stand as in the text. `pair` are the element and accumulator types of a kernel
    without type parameters. `vector` is the number of elements at each of its indexes: 4 for
    ``float4``, and `per_n` how many of them n counts as one. `code` is the kernel with the
    functions that it calls, with macros expanded. `launched` are the dtypes of its sums in launches
    of the text, if its template has types.
    """

    name: str
    line: int
    template: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    pair: tuple[str, str] | None
    scope: str = ""  # the namespaces around it, as in "mine::"
    code: str = field(default="", repr=False)
    sums: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # other names of `out`
    constants: tuple[tuple[str, int], ...] = ()
    vector: int = 1
    per_n: int = 1
    launched: tuple[str, ...] = ()

    @property
    def types(self) -> int:
        """The number of type parameters of the template."""
        return sum(kind in ("In", "Acc") for kind in self.template)

    @property
    def block(self) -> bool:
        """Whether the block size is a parameter of the template."""
        return "block" in self.template

    def named(self, role: str) -> str:
        """The name of the parameter with a role; empty if there is none."""
        return next((one.name for one in self.parameters if one.role == role), "")

    def type_of(self, role: str) -> str:
        """The type of the parameter with a role; empty if there is none."""
        return next((one.type for one in self.parameters if one.role == role), "")

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles, in the order of our own kernels."""
        return tuple(role for role in ROLES if any(role == one.role for one in self.parameters))

    @property
    def is_usual(self) -> bool:
        """Whether the parameters are those of our own kernels, in their order."""
        same = tuple(one.role for one in self.parameters) == ROLES[: len(self.parameters)]
        return same and not self.constants and self.vector == 1

    @property
    def takes_n(self) -> bool:
        """Whether a parameter gives the number of elements."""
        return "n" in self.roles


_BOUNDS = r"(?:__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)\s*)?"
HEAD = re.compile(
    rf"(?:__global__\s+{_BOUNDS}(?:static\s+|inline\s+){{0,3}}void|\bvoid\s+__global__)"
    rf"\s+{_BOUNDS}(\w+)\s*\("
)
_RETURNS = re.compile(r"\b__global__\s+([\w:<>*& ]{1,60}?[\s*&])(\w+)\s*\(")
_TEMPLATE = re.compile(r"template\s*<([^<>]*)>\s*(?:static\s+)?$")
_INTEGER = re.compile(
    r"(?:const )?(?:unsigned|int|size_t|unsigned int|long|long long|unsigned long|long int|"
    r"unsigned long long|u?int(?:32|64)_t|std::size_t|uint|long unsigned int)(?: const)?"
)


def _parameter(text: str) -> Parameter:
    text = re.sub(r"\b__restrict(__)?\b|\b__grid_constant__\b", " ", text.partition("=")[0]).strip()
    text = re.sub(r"\b(\w+)\s*\[\s*\d*\s*\]$", r"* \1", text)  # an array parameter is a pointer
    text = re.sub(r"\s*\*\s*", " * ", text).rstrip()
    letters = re.match(r"\w*", text[::-1])
    name = letters[0][::-1] if letters else ""
    kind = text.removesuffix(name)
    if not kind or name in ("int", "unsigned", "long", "size_t", "float", "double"):
        kind, name = text, ""
    return Parameter(" ".join(kind.split()), name)


def _template(code: str, start: int, name: str) -> tuple[list[str], list[str], list[str]]:
    """The kinds, the names and the default values of the template's parameters."""
    before = re.sub(r"(?:(?:extern|static|inline|__inline__)\s*)+$", "", code[:start])
    found = _TEMPLATE.search(before)
    kinds: list[str] = []
    names: list[str] = []
    values: list[str] = []
    for part in split(found[1]) if found else ():
        head, _, value = part.partition("=")
        declared = head.split()
        kinds.append(
            "type" if declared[0] in ("typename", "class") else
            "true" if declared[0] == "bool" and re.search("(?i)sum|store", declared[-1]) else
            "flag" if declared[0] == "bool" else
            "integer" if _INTEGER.fullmatch(" ".join(declared[:-1])) else ""
        )  # fmt: skip
        names.append(declared[-1])
        values.append(value.strip())
    if kinds.count("type") > 2 or "" in kinds:
        raise KernelError(
            f"the template of {name} has unknown parameters: gpureduce fills in typename In and "
            "typename Acc (or one type for both), the block size, and numbers with a default, as "
            "in template <typename In, typename Acc, unsigned block>"
        )
    types = iter(("In", "Acc") if kinds.count("type") == 2 else ("Acc",))
    return [next(types) if kind == "type" else kind for kind in kinds], names, values


_BLOCK = r"(?i)\w*(?:block|threads|cta)\w*|nt|bs|tpb|bdim|ntid"  # names of the block size
_SIZE = r"(?i)n|num_?elem\w*|size|len\w*|count|array_?size"
_NO_BLOCK = r"(?i)\w*(?:items|per_?thread|coars|unroll|vec|factor|elem|loads)\w*"


def _numbers(
    kernel: str,
    kinds: list[str],
    names: list[str],
    values: list[str],
    code: str,
    launched: list[list[str]],
) -> tuple[tuple[str, int], ...]:
    """The values of a template's numbers, and "block" in `kinds` for the one that is the block.

    A value stands in a launch, or is the default. Otherwise tiles have 32 lanes, and threads 4
    elements.
    """
    integers = [i for i, kind in enumerate(kinds) if kind == "integer"]
    tiles = [i for i in integers if re.search(
        rf"\b(?:tiled_partition|thread_block_tile)\s*<\s*{names[i]}\b", code)]  # fmt: skip
    sizes = [i for i in integers if re.fullmatch(_SIZE, names[i])
             and not re.search(rf"__shared__[^;]{{1,99}}\[\s*{names[i]}\b", code)]  # fmt: skip
    others = [i for i in integers if i not in tiles and not re.fullmatch(_NO_BLOCK, names[i])]
    others = [i for i in others if i not in sizes]
    others.sort(key=lambda i: not re.fullmatch(_BLOCK, names[i]))
    found = []
    known = constants(code)
    for i in integers:
        if i in others[:1]:
            kinds[i] = "block"
            continue
        given = [arguments[i : i + 1] for arguments in launched]
        usual = "32" if i in tiles else "" if i in (*others, *sizes) else "4"
        texts = [*(one[0] for one in given if one), values[i], usual]
        numbers = [number(text.strip(), known) for text in texts]
        value = next((one for one in numbers if one is not None), None)
        if value is None:
            raise KernelError(
                f"the template parameter {names[i]} of {kernel} has no value: give it a default, "
                f"as in template <int {names[i]} = 4>"
            )
        kinds[i] = str(value)
        found.append((names[i], value))
    return tuple(found)


_VECTOR = re.compile(
    r"(float|double|int|uint|u?char|u?short|u?longlong|half|__half|__nv_bfloat16)([24])"
)
_OF_VECTORS = {"uint": "unsigned", "uchar": "unsigned char", "char": "signed char",
               "ushort": "unsigned short", "longlong": "long long",
               "ulonglong": "unsigned long long"}  # fmt: skip


def _plain(kind: str, others: Mapping[str, str]) -> tuple[str, int]:
    """The type of elements without qualifiers and aliases, and the number of them in a vector."""
    plain = " ".join(re.sub(r"\b(const|volatile)\b|\*", " ", kind).split())
    for _ in range(3):  # an alias of an alias
        plain = others.get(plain, plain)
    if found := _VECTOR.fullmatch(plain):
        return _OF_VECTORS.get(found[1], found[1]), int(found[2])
    return plain, 1


def _type_of(
    kind: str, known: dict[str, str], name: str, what: str, others: Mapping[str, str]
) -> str:
    plain, _ = _plain(kind, others)
    for tag, words in known.items():
        if plain in words.split("|"):
            return tag
    allowed = [words.split("|")[0] for words in known.values()]
    raise KernelError(
        f"{name} has {what} of type {plain or kind}; without a template they are one of "
        f"{', '.join(allowed)}"
    )


def _per_n(n: str, vector: int, code: str) -> int:
    """How many elements n counts as one: those of a vector, unless the code divides n by them."""
    shift, near = vector.bit_length() - 1, r"[^;{}]{0,60}"
    divides = rf"\b{n}\s*(?:/\s*\(?\s*{vector}\b|>>=?\s*{shift}\b)"
    times = rf"(?:\b{vector}\s*\*|\*\s*{vector}\b|<<\s*{shift}\b){near}<=?\s*{n}\b"
    return 1 if re.search(f"{divides}|{times}", code) else vector


def _pair(name: str, elements: str, sums: str, others: Mapping[str, str]) -> tuple[str, str]:
    """The element and accumulator types of a kernel without type parameters."""
    load = _type_of(elements, _LOADS, name, "elements", others)
    acc = _type_of(sums, _ACCS, name, "sums", others)
    load = "u32" if (load, acc) == ("i32", "u32") else load
    if load not in PAIRS[acc]:
        raise KernelError(
            f"{name} sums {elements} in {sums}, which cannot hold such sums: sum integers of 64 "
            "bits in 64 bits, in float or in double; smaller integers in 32 bits or more, in "
            "float or in double; floats in float or double"
        )
    return load, acc


def heads(code: str) -> list[re.Match[str]]:
    """The heads of the kernels in a text without comments; a prototype is none."""
    ends = [(head, closing(code, head.end() - 1) + 1) for head in HEAD.finditer(code)]
    return [head for head, end in ends if not re.match(r"\s*;", code[end : end + 99])]


def names_in(text: str) -> list[str]:
    """The names of the kernels in the text."""
    return list(dict.fromkeys(head[1] for head in heads(without_comments(text))))


def check_text(text: str) -> None:
    """Raises for a text that no compiler can read."""
    if len(text) > MOST_LETTERS:
        raise KernelError(
            f"the text has {len(text)} characters, and may have at most {MOST_LETTERS}"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise KernelError(f"the text has {text[error.start]!r}, which UTF-8 cannot hold") from None


def read(text: str, name: str | None = None, program: str = "", scans: bool = False) -> Signature:
    """The head of the kernel with this name, or of the only kernel in the text.

    `program` is the text with its functions of the host, which may launch the kernel. `scans`: the
    kernel makes running sums.
    """
    code = expanded(without_comments(text))
    kernels = heads(code)
    names = [head[1] for head in kernels]
    if not kernels and (other := _RETURNS.search(code)):
        line = line_at(code, other.start())
        kind = other[1].strip()
        raise KernelError(f"line {line}: {other[2]} returns {kind}; a kernel returns void")
    if not kernels:
        raise KernelError(f"there is no kernel in the text; a kernel begins as {FORMS}")
    if name is None and len(set(names)) > 1:
        raise KernelError(
            f"there are {len(kernels)} kernels in the text: name one of {', '.join(names)}"
        )
    if name is not None and name not in names:
        raise KernelError(f"there is no kernel {name!r} in the text; there are {', '.join(names)}")
    head = kernels[names.index(name) if name else 0]
    same = [one.start() for one in kernels if one[1] == head[1]]
    if len(same) > 1 and not re.search(r"(?m)^[ \t]*#[ \t]*el", code[same[0] : same[-1]]):
        raise KernelError(
            f"there are {len(same)} kernels named {head[1]} in the text: give each its own name"
        )
    end = closing(code, head.end() - 1)
    template, template_names, values = _template(code, head.start(), head[1])
    own = own_code(code, head[1])
    launches = re.compile(rf"\b{head[1]}\s*<([^;<>]{{1,200}})>\s*(?:<<<|\()")
    launched = [split(one) for one in launches.findall(without_comments(program or text))]
    numbers = _numbers(head[1], template, template_names, values, own, launched)
    own += "".join(f"\nconstexpr int {constant} = {value};" for constant, value in numbers)
    generic = {n for n, kind in zip(template_names, template, strict=True) if kind in ("In", "Acc")}
    given = [_parameter(" ".join(part.split())) for part in split(code[head.end() : end])]
    for variable in re.findall(r"\b__constant__\s[^;={}]*?\b(\w+)\s*(?:\[[^;={}]*)?;", own):
        if len(re.findall(rf"\b{variable}\b", own)) > 1:
            raise KernelError(
                f"{head[1]} uses the __constant__ variable {variable}, whose value the host sets: "
                f"give it one in the text, or take #define {variable} in its place"
            )
    brace = code.find("{", end)
    body = code[brace : closing(code, brace)] if brace >= 0 else ""
    parameters = _with_roles(head[1], given, body, generic, code, scans)
    scopes: list[str] = []
    for one in re.finditer(r"\bnamespace\s+([\w:]+)\s*\{|[{}]", code[: head.start()]):
        if one[0] != "}":
            scopes.append(f"{one[1]}::" if one[1] else "")
        elif scopes:
            scopes.pop()
    scope = "".join(scopes)
    line = line_at(code, head.start())
    out = next(one.name for one in parameters if one.role == "out")
    for parameter in parameters:
        if parameter.role in LAUNCH:
            own = re.sub(rf"\b{parameter.name}\b", LAUNCH[parameter.role], own)
    sums = tuple(_names_of(out, body, code))[1:]
    found = Signature(head[1], line, tuple(template), parameters, None, scope, own, sums, numbers)
    if found.types:
        at = template.index("Acc")
        types = [_DTYPES.get(one[at].strip()) for one in launched if len(one) > at]
        return replace(found, launched=tuple(dict.fromkeys(filter(None, types))))
    pair = _pair(head[1], found.type_of("in"), found.type_of("out"), aliases(code))
    vector = _plain(found.type_of("in"), aliases(code))[1]
    per_n = _per_n(found.named("n"), vector, own) if vector > 1 and found.takes_n else 1
    return replace(found, pair=pair, vector=vector, per_n=per_n)


# --- what each parameter is for ------------------------------------------------------------------

# An atomic function before its address, with or without a cast; and a store through a pointer.
ATOMIC = (
    r"\b(?:atomic\w+\s*\(\s*(?:\([^()]*\)\s*|reinterpret_cast\s*<[^<>]*>\s*\(\s*)?(?:&\s*)?"
    r"|atomic_ref\s*<[^<>]*>\s*\w*\s*[({]\s*\*?\s*)"
)
TARGET = r"\*\s*(?:\([^()]{1,60}\*\s*\)\s*)?"
_INDEX = r"\s*\[(?:[^\[\]]|\[[^\[\]]*\])*\]"


_MOST_ALIASES = 8  # of a pointer


def _names_of(
    name: str, body: str, code: str, depth: int = 3, seen: set[tuple[str, int]] | None = None
) -> Iterator[tuple[str, str]]:
    """The names of a pointer, each with the text in which it has this name.

    They are its own, its aliases, and the names of parameters of helpers that get it.
    """
    seen = set() if seen is None else seen
    if not name or not depth or (name, hash(body)) in seen:
        return
    seen.add((name, hash(body)))
    yield name, body
    cast = r"(?:\([^()]{1,60}\)\s*|reinterpret_cast\s*<[^<>]*>\s*\(\s*)?&?\s*"
    alias = rf"(?:\*|&|\bauto)\s*(?:\w+\s+)?(\w+)\s*=\s*{cast}{name}\b"
    others = [other for other in re.findall(alias, body) if other != name]
    for other in dict.fromkeys(others[:_MOST_ALIASES]):
        yield from _names_of(other, body, code, depth - 1, seen)
    for call in re.finditer(rf"\b(\w+)\s*(?:<[^<>;]*>\s*)?\((?=[^;{{}}]{{0,400}}\b{name}\b)", body):
        arguments = split(body[call.end() : closing(body, call.end() - 1)])
        at = [i for i, one in enumerate(arguments) if re.match(rf"\s*{cast}{name}\b(?!\s*\[)", one)]
        for helper in _helpers(code) if at else ():
            head = re.search(rf"\b{call[1]}\s*\(", helper.head)
            if not head:
                continue
            given = split(helper.head[head.end() : closing(helper.head, head.end() - 1)])
            for i in at[: len(given)]:
                if "const" not in given[i]:
                    inner = code[helper.open : helper.end]
                    name_there = _parameter(given[i]).name
                    yield from _names_of(name_there, inner, code, depth - 1, seen)


@functools.lru_cache(maxsize=4)
def _helpers(code: str) -> tuple[Block, ...]:
    return tuple(one for one in functions(code) if "__global__" not in one.head)


def _accesses(name: str) -> tuple[str, str]:
    """Patterns of an element of this pointer, and of a store to one."""
    stores = r"(?:[-+*/|&^]|<<|>>)?=(?!=)|\+\+|--"
    element = rf"(?:\b{name}{_INDEX}|{TARGET}{name}\b|\*\s*\(\s*{name}\b[^()]*\))"
    return element, rf"{element}\s*(?:{stores})|{ATOMIC}{name}\b|(?:\+\+|--)\s*{element}"


def _is_written(name: str, body: str) -> bool:
    """Whether a text stores to what a pointer points to, by this name."""
    return bool(re.search(_accesses(name)[1], body))


def _is_read(name: str, body: str) -> bool:
    """Whether a text uses what a pointer points to, or what an atomic finds there."""
    element, store = _accesses(name)
    found = rf"[=(,<>]\s*{ATOMIC}{name}\b"
    return bool(
        re.search(found, body) or re.search(rf"(?<!&)(?<!& ){element}", re.sub(store, " ", body))
    )


def _is_only_read(name: str, body: str) -> bool:
    """Whether elements of a pointer that is not stored to are all that a text uses of it."""
    return bool(_is_read(name, body)) and not re.search(rf"&\s*{name}\b|\b{name}\b(?!\s*\[)", body)


def _has_any(test: Callable[[str, str], bool], name: str, body: str, code: str) -> bool:
    """Whether a test holds for a pointer by any of its names."""
    return any(test(*where) for where in _names_of(name, body, code))


def _gets_the_sums(name: str, body: str) -> bool:
    """Whether the body stores one value for each block there, or one for all."""
    return bool(
        re.search(rf"\b{name}\s*\[\s*(?:blockIdx\s*\.\s*x|0)\s*\]\s*[-+]?=(?!=)", body)
        or re.search(rf"{TARGET}{name}\s*[-+]?=(?!=)|{ATOMIC}{name}\b", body)
    )


def _gets_the_total(name: str, body: str) -> bool:
    """Whether all blocks store or add to one element."""
    one = rf"\b{name}\s*\[\s*0\s*\]\s*[-+]?=(?!=)|{TARGET}{name}\s*[-+]?=(?!=)"
    return bool(re.search(rf"{one}|{ATOMIC}{name}\b(?!\s*\[\s*[^0\s])", body))


def _with_roles(
    kernel: str, given: Sequence[Parameter], body: str, generic: set[str], code: str, scans: bool
) -> tuple[Parameter, ...]:
    """The parameters with their roles, which type, ``const`` and use tell."""
    roles: dict[int, str] = {}
    integers = [i for i, one in enumerate(given) if _INTEGER.fullmatch(one.type)]
    for i in integers:
        for role in _LAUNCH:
            if _is_launch(given[i].name, role, body):
                roles[i] = role
    counts = [i for i in integers if i not in roles]
    named = [i for i in counts if re.fullmatch(r"(?i)n|num\w*|n_?elem\w*|size|len\w*|count|N\w*",
                                               given[i].name)]  # fmt: skip
    for i in (named or counts)[:1]:
        roles[i] = "n"
    memory = [i for i, one in enumerate(given)
              if "*" in one.type or one.type.replace("const", "").strip() in generic]  # fmt: skip
    written = [i for i in memory if _has_any(_is_written, given[i].name, body, code)]
    constant = [i for i in memory if "*" not in given[i].type or re.search(
        r"\bconst\b", given[i].type.partition("*")[0])]  # fmt: skip
    unwritten = [i for i in memory if i not in written]
    sums = [i for i in written if _gets_the_sums(given[i].name, body)]
    if len(sums) > 1:  # their total is not read, those of each block and a ticket are
        total = [i for i in sums if not _has_any(_is_read, given[i].name, body, code)]
        if len(total) > 1:
            total = [i for i in total if _gets_the_total(given[i].name, body)]
        sums = total if len(total) == 1 else sums
    if scans:  # the blocks' sums are scratch memory, and the entries are not one for each block
        sums = [i for i in written if i not in sums]
    elements = (constant or [i for i in unwritten if written] or
                [i for i in memory if len(sums) == 1 and i not in sums] or memory)  # fmt: skip
    for i in elements[:1]:
        roles[i] = "in"
    others = [i for i in memory if i not in roles and i not in constant]
    drawn = _is_ticket if len(others) > 2 else _is_drawn
    tickets = [i for i in others if drawn(given[i], body)] if len(others) > 1 else []
    if len(sums) == 1:  # before scratch memory
        others.sort(key=lambda i: i not in sums)
    others.sort(key=lambda i: i in tickets[-1:])
    rest = ("out", "ticket") if tickets and len(others) == 2 else ("out", "work", "ticket")
    for i, role in zip(others, rest, strict=False):
        roles[i] = role
    missing = {"in": "the elements", "out": "the sums"}
    for role, what in missing.items():
        if role not in roles.values():
            raise NotASum(
                f"{kernel} has no parameter for {what}; a kernel takes elements, sums and their "
                f"number, as in {FORMS}"
            )
    if scans:
        _check_arrays(kernel, given, roles, written, body, code)
    only_read = [
        given[i].name for i in memory if i not in written and _is_only_read(given[i].name, body)
    ]
    if len(only_read) > 1:
        raise NotASum(
            f"{kernel} reads {' and '.join(only_read)}: gpureduce judges sums of one array, and no "
            "dot products or other sums of several"
        )
    for i, one in enumerate(given):
        if i not in roles:
            raise KernelError(
                f"gpureduce cannot fill in the parameter '{_short(one)}' of {kernel}: it passes "
                "the elements, the sums, the number of elements, the size and the number of "
                "blocks, scratch memory and a ticket"
            )
    return tuple(Parameter(one.type, one.name, roles[i]) for i, one in enumerate(given))


def _check_arrays(
    kernel: str, given: Sequence[Parameter], roles: Mapping[int, str], written: Sequence[int],
    body: str, code: str,
) -> None:  # fmt: skip
    """Raises for arrays of a kernel that makes running sums, if they fit no form."""
    at = {role: i for i, role in roles.items()}
    elements, out = given[at["in"]], given[at["out"]]
    if at["in"] in written and not _has_any(_is_read, elements.name, body, code):
        raise KernelError(
            f"{kernel} makes running sums in place, in {out.name}: gpureduce passes the elements "
            f"and the entries as two arrays, as in const {out.type} in, {out.type} out"
        )
    if "work" not in at:
        return
    work = given[at["work"]]
    if not re.search(rf"\b{work.name}\b", body):
        raise KernelError(
            f"{kernel} does not use {work.name}: each block stores its sum in "
            f"{work.name}[blockIdx.x]"
        )
    kinds = [_plain(one.type, aliases(code))[0] for one in (work, out)]
    tags = [next((tag for tag, words in _ACCS.items() if kind in words.split("|")), kind)
            for kind in kinds]  # fmt: skip
    if tags[0] != tags[1]:
        zeros = "; words that are 0 at first lie behind the ticket, 2 * blocks of them"
        raise KernelError(
            f"{kernel} has scratch memory of type {kinds[0]}, {work.name}: it has the type of the "
            f"entries, {kinds[1]}{zeros * ('ticket' in at)}"
        )


_LAUNCH = {
    "block": r"(?i)block_?(?:size|dim|width)(?:_?x)?|(?:n|num)?_?threads?(?:_?per_?block)?|tpb|bs",
    "grid": r"(?i)(?:n|num)_?blocks|grid_?(?:size|dim)(?:_?x)?",
    "threads": r"(?i)(?:n|num|total|all)?_?threads?|(?:grid_?)?stride|grid_?size",
}


def _is_launch(name: str, role: str, body: str) -> bool:
    """Whether a number is that of the threads of a block, of the blocks, or of all threads.

    Its name and its use tell: a loop's step is the number of all threads.
    """
    stride = re.search(rf"\+=\s*{name}\s*[;,)]", body)
    per_block = re.search(rf"\bblockIdx\s*\.\s*x\s*\*\s*{name}\b", body)
    of_all = bool(stride and not per_block)
    return of_all == (role == "threads") and bool(re.fullmatch(_LAUNCH[role], name))


def _short(one: Parameter) -> str:
    text = f"{one.type} {one.name}".strip()
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_drawn(one: Parameter, body: str) -> bool:
    """Whether a parameter is a ticket or a lock: the text uses what an atomic returned of it."""
    use = rf"[=(,<>]\s*atomic(?:Inc|Add|Dec|CAS|Exch)\s*\(\s*&?\s*{one.name}\b"
    return bool(re.search(r"\b(?:unsigned|int)\b", one.type) and re.search(use, body))


def _is_ticket(one: Parameter, body: str) -> bool:
    counts = re.search(rf"\batomic(?:Inc|Add|Dec)\s*\(\s*&?\s*{one.name}\b", body)
    return bool(counts and re.search(r"\b(?:unsigned|int|uint32_t)\b", one.type))
