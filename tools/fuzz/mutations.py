"""Changes of bytes, of text and of JSON values."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any


def of_bytes(rng: Random, whole: bytes) -> bytes:
    """Some bytes changed, cut off, doubled or moved."""
    data = bytearray(whole)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((1, 1, 2, 8, 100)))
        way = rng.randrange(7)
        if way == 0:
            del data[at:]
        elif way == 1:
            del data[at:end]
        elif way == 2:
            data[at:at] = data[at:end]
        elif way == 3:
            data[at:end] = bytes(end - at)
        elif way == 4:
            data[at:at] = rng.randbytes(end - at)
        else:
            for i in range(at, end):
                data[i] ^= 1 << rng.randrange(8)
    return bytes(data)


ODD_JSON = (
    None, True, False, 0, 1, -1, 2**31, 2**32, 2**63, 2**64 - 1, 2**64, 10**30, 0.5, -0.0, 1e308,
    float("inf"), float("-inf"), float("nan"), "", "x", "1", "\ud800", "é" * 50, [], {}, [[]],
    [None], {"": 0}, [0] * 100, "fast", "exact", "cascade", "numpy",
)  # fmt: skip


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every container in a JSON value with each of its keys or indexes."""
    if isinstance(value, dict):
        keys: Any = list(value)
    else:
        keys = range(min(len(value), 20)) if isinstance(value, list) else ()
    for key in keys:
        found.append((value, key))
        _places(value[key], found)
    return found


def of_json(rng: Random, whole: Any) -> Any:
    """A value with some parts replaced, left out, doubled or renamed."""
    made = json.loads(json.dumps(whole))
    for _ in range(rng.choice((1, 1, 2, 4))):
        places = _places(made, [])
        if not places or rng.random() < 0.02:
            return copy.deepcopy(rng.choice(ODD_JSON))
        # The few places near the top are chosen more often than the many below.
        container, key = rng.choice(places[:8] if rng.random() < 0.3 else places)
        if isinstance(container, dict) and key not in container:
            continue
        if isinstance(container, list) and key >= len(container):
            continue
        way = rng.randrange(6)
        if way == 0:
            del container[key]
        elif way == 1 and isinstance(container, list):
            container.insert(key, copy.deepcopy(container[key]))
        elif way == 1:
            container[rng.choice(("x", "", "schema", f"{key}s"))] = copy.deepcopy(container[key])
        elif way == 2 and type(container[key]) in (int, float):
            container[key] = rng.choice((-1, 2, 1e9)) * container[key] + rng.choice((0, 1))
        else:
            container[key] = copy.deepcopy(rng.choice(ODD_JSON))
    return made


def json_text(rng: Random, value: Any) -> bytes:
    """A value as a file, now and then with text that is no JSON, or deep."""
    text = json.dumps(value).encode("utf-8", "surrogatepass")
    way = rng.random()
    if way < 0.15:
        return of_bytes(rng, text)
    if way < 0.18:
        depth = rng.choice((100, 5000, 100_000))
        return rng.choice((b"[", b'{"a":')) * depth
    if way < 0.20:
        return text.replace(b": 1", b": 1" + b"0" * 5000)
    return text
