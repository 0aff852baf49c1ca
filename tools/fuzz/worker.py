"""The process that runs cases. Its parent learns from shared memory which case it is at."""

from __future__ import annotations

import argparse
import faulthandler
import json
import random
import time
import traceback
from pathlib import Path

from tools.fuzz import kinds, notes, outcomes, shared

# The exit status after a failure that may have spoiled the process.
SPOILED = 77


_case = 0


def case_number() -> int:
    return _case


def _told(error: BaseException) -> dict[str, str]:
    """The report on a failure, which the parent prints."""
    of: BaseException | None = error
    if not isinstance(error, outcomes.Failure):
        head = f"unexpected {outcomes.describe(error)}"
    else:
        head, of = str(error), error.__cause__
    trace = traceback.format_exception(of, chain=False) if of else []
    return {"head": head, "trace": "".join(trace[-6:])}


def main(arguments: argparse.Namespace) -> int:
    """Run cases from --start up to LAST, or until the parent ends this process."""
    global _case
    faulthandler.enable()
    memory, text = shared.open_memory(Path(arguments.worker[0]))
    notes.keep_in(text)
    module = kinds.module_of(arguments.kind)
    if hasattr(module, "prepare"):
        module.prepare(arguments)
    with Path(arguments.worker[1]).open("a") as report:
        for case in range(arguments.start, int(arguments.worker[2])):
            memory[shared.STARTED_NS] = time.monotonic_ns()
            memory[shared.CASE] = _case = case
            notes.clear()
            rng = random.Random(f"{arguments.kind} {arguments.seed} {case}")
            try:
                shared.count(memory, module.case(rng))
            except BaseException as error:
                shared.count(memory, "failed")
                told = {"case": case, "notes": notes.read(text), **_told(error)}
                print(json.dumps(told), file=report, flush=True)
                if arguments.kind in kinds.FRAGILE:
                    return SPOILED
    return 0
