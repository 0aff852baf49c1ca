"""Several threads of Python that call gpureduce at once. tools/sanitizers.py runs it with TSan."""

from __future__ import annotations

import threading
from random import Random

import gpureduce
from tools.fuzz import calls, notes
from tools.fuzz.outcomes import Failure, describe

MOST = 1 << 14
_MAKERS = (
    calls.emulated_sum,
    calls.emulated_sum,
    calls.host_sum,
    calls.axis_sum,
    calls.segment_sum,
    calls.gpu_array,
    calls.strided_sum,
    calls.accumulate,
)


def _run(mine: list[calls.Call], start: threading.Barrier, failures: list[str]) -> None:
    start.wait()
    for call in mine:
        try:
            call.check(call.run())
        except BaseException as error:
            told = str(error) if isinstance(error, Failure) else f"raised {describe(error)}"
            failures.append(f"{call.key}: {told}")


def case(rng: Random) -> str:
    """Two to five threads with some calls each, beside one that gives memory back."""
    count = rng.randint(2, 5)
    start = threading.Barrier(count + 1)
    failures: list[str] = []
    every = [
        [rng.choice(_MAKERS)(rng, MOST) for _ in range(rng.randint(1, 3))] for _ in range(count)
    ]
    notes.add(", ".join(call.key for mine in every for call in mine))
    threads = [threading.Thread(target=_run, args=(mine, start, failures)) for mine in every]
    for thread in threads:
        thread.start()
    start.wait()
    for _ in range(rng.randint(0, 2)):
        gpureduce.free_scratch()
    for thread in threads:
        thread.join()
    if failures:
        raise Failure("; ".join(failures))
    return "right"
