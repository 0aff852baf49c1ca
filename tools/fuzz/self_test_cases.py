"""Failures on purpose: tests/tools/test_fuzz.py looks at what the parent makes of them."""

from __future__ import annotations

import ctypes
import os
import time
from random import Random

from tools.fuzz import worker


def case(_: Random) -> str:
    """The first four cases fail, each in another way."""
    number = worker.case_number()
    if number == 0:
        ctypes.string_at(8)
    if number == 1:
        time.sleep(1000)
    if number == 2:
        raise KeyError("mended")
    if number == 3:
        os._exit(3)
    return "right"
