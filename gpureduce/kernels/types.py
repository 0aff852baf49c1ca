"""The element and accumulator types of kernels, by the tags of csrc/shared/dtypes.h."""

from __future__ import annotations

from gpureduce import _host
from gpureduce.core import registry

Pair = tuple[str, str]  # the tags of the elements and of the sums

# The tag of each dtype's elements: int64 is read as uint64, and bool as uint8.
TAG_OF_DTYPE = {"bool": "u8", "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16",
                "int32": "i32", "uint32": "u32", "int64": "u64", "uint64": "u64",
                "float16": "f16", "bfloat16": "bf16", "float32": "f32",
                "float64": "f64"}  # fmt: skip
# The numbers of the types for C.
LOAD_OF = {tag: registry.DTYPES[name] for name, tag in TAG_OF_DTYPE.items()}
ACC_OF = {"u32": _host.ACC_U32, "u64": _host.ACC_U64, "f32": _host.ACC_F32, "f64": _host.ACC_F64}
LOAD_TAGS = {number: tag for tag, number in LOAD_OF.items()}
ACC_TAGS = {number: tag for tag, number in ACC_OF.items()}
