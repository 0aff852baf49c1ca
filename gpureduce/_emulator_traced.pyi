"""What the traced build is used for beyond csrc/bindings/module.c: csrc/bindings/tracing.c."""

from typing import Any

def memory_limit(token: int, bytes: int, /) -> None: ...
def live_bytes() -> int: ...
def counter_names() -> tuple[str, ...]: ...
def plan_pass(
    strategy: int,
    load: int,
    acc: int,
    n: int,
    block: int,
    grid: int,
    finish: int,
    later: bool,
    /,
) -> tuple[int, int, int, int]: ...
def count_pass(
    strategy: int,
    load: int,
    acc: int,
    n: int,
    block: int,
    grid: int,
    finish: int,
    later: bool,
    samples: bytes,
    /,
) -> tuple[
    list[tuple[str | None, int, tuple[int, ...], tuple[int, int, int, int, int, bytes]]],
    list[tuple[int, int, tuple[int, ...], bytes]],
    list[tuple[int, ...]],
]: ...
def shared_wavefronts(offsets: bytes, mask: int, size: int, store: bool, /) -> tuple[int, int]: ...
def recorder_limits() -> tuple[int, int]: ...
def watched_sum(*arguments: object) -> tuple[Any, ...]: ...
