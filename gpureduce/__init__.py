"""Parallel reduction, rung by rung.

`sum` adds up an array by the strategy you name, on a GPU or on an emulated one, and times it;
`strategies` lists the rungs of the ladder, each with its lesson;
`explain` counts the operations of a rung and shows why the next one is faster.
"""

from __future__ import annotations

import sys as _sys
from pathlib import Path as _Path
from typing import TYPE_CHECKING, Any

import numpy as _numpy  # noqa: F401  first: C's import of NumPy hides what a signal handler raises

try:
    from gpureduce import _host  # noqa: F401
except ImportError as _error:
    if any(_Path(__file__).parent.glob("_host*.so")):
        raise
    raise ImportError(
        f"{_Path(__file__).parent} has gpureduce's sources without its compiled modules: start "
        "Python in another folder, or build them here by: pip install -e ."
    ) from _error

from gpureduce.core.devices import Device, build_info, devices, free_scratch
from gpureduce.core.devices import warn_of_threads as _warn_of_threads
from gpureduce.core.registry import Strategy, strategies
from gpureduce.core.results import SumResult, Timing
from gpureduce.core.summation import sum
from gpureduce.errors import CudaError
from gpureduce.lazy_import import load as _load
from gpureduce.version import VERSION

if TYPE_CHECKING:
    from gpureduce import emulator, exact, plot
    from gpureduce.auditing.audit import Audit, assert_reproducible, audit
    from gpureduce.bench.benchmark import Measurement, benchmark
    from gpureduce.bench.tuning import Tuned, tune
    from gpureduce.core.accumulator import Accumulator
    from gpureduce.core.bounds import error_bound
    from gpureduce.core.calibration import Calibration, calibrate, calibration
    from gpureduce.core.cumsum import cumsum
    from gpureduce.core.device_array import DeviceArray
    from gpureduce.core.exact_words import ExactWords, exact_words, include_path
    from gpureduce.core.fast_table import fast_table
    from gpureduce.core.integrals import Integrand, integrands, integrate
    from gpureduce.core.moments_accumulator import Moments
    from gpureduce.core.segments import segment_sum
    from gpureduce.core.sources import Source, source
    from gpureduce.core.table_files import Choice
    from gpureduce.core.trapezoid import trapezoid
    from gpureduce.emulator.explain import Comparison, Explanation, explain
    from gpureduce.emulator.race import Race
    from gpureduce.emulator.races import Races, races
    from gpureduce.emulator.replay import Replay, replay
    from gpureduce.kernels.check import check
    from gpureduce.kernels.grading import Grade, grade
    from gpureduce.kernels.kernel import Kernel, kernel
    from gpureduce.kernels.notebook import (
        load_ipython_extension as load_ipython_extension,
    )
    from gpureduce.kernels.process import KernelEnded
    from gpureduce.kernels.source_text import KernelError
    from gpureduce.kernels.verdict import Verdict
    from gpureduce.kernels.worker import Limits
    from gpureduce.several.digit_arrays import digits, from_digits, segment_digits
    from gpureduce.several.parts import sum_parts

__version__ = VERSION
_warn_of_threads()

# The modules of the other public names. A module is imported when one of its names is first used.
_HOMES = {
    "auditing.audit": "Audit assert_reproducible audit",
    "bench.benchmark": "Measurement benchmark",
    "bench.tuning": "Tuned tune",
    "core.accumulator": "Accumulator",
    "core.bounds": "error_bound",
    "core.calibration": "Calibration calibrate calibration",
    "core.cumsum": "cumsum",
    "core.device_array": "DeviceArray",
    "core.exact_words": "ExactWords exact_words include_path",
    "core.fast_table": "fast_table",
    "core.table_files": "Choice",
    "core.moments_accumulator": "Moments",
    "core.integrals": "Integrand integrands integrate",
    "core.segments": "segment_sum",
    "core.sources": "Source source",
    "core.trapezoid": "trapezoid",
    "emulator.explain": "Comparison Explanation explain",
    "emulator.race": "Race",
    "emulator.races": "Races races",
    "emulator.replay": "Replay replay",
    "kernels.check": "check",
    "kernels.grading": "Grade grade",
    "kernels.kernel": "Kernel kernel",
    "kernels.notebook": "load_ipython_extension",
    "kernels.process": "KernelEnded",
    "kernels.source_text": "KernelError",
    "kernels.verdict": "Verdict",
    "kernels.worker": "Limits",
    "several.digit_arrays": "digits from_digits segment_digits",
    "several.parts": "sum_parts",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Accumulator",
    "Audit",
    "Calibration",
    "Choice",
    "Comparison",
    "CudaError",
    "Device",
    "DeviceArray",
    "ExactWords",
    "Explanation",
    "Grade",
    "Integrand",
    "Kernel",
    "KernelEnded",
    "KernelError",
    "Limits",
    "Measurement",
    "Moments",
    "Race",
    "Races",
    "Replay",
    "Source",
    "Strategy",
    "SumResult",
    "Timing",
    "Tuned",
    "Verdict",
    "assert_reproducible",
    "audit",
    "benchmark",
    "build_info",
    "calibrate",
    "calibration",
    "check",
    "cumsum",
    "devices",
    "digits",
    "emulator",
    "error_bound",
    "exact",
    "exact_words",
    "explain",
    "fast_table",
    "free_scratch",
    "from_digits",
    "grade",
    "include_path",
    "integrands",
    "integrate",
    "kernel",
    "plot",
    "races",
    "replay",
    "segment_digits",
    "segment_sum",
    "source",
    "strategies",
    "sum",
    "sum_parts",
    "trapezoid",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in ("emulator", "exact", "plot"):
        return _load(name)
    if name not in _HOME_OF:
        module = _sys.modules[__name__]  # with its name, Python suggests the nearest attribute
        text = f"module 'gpureduce' has no attribute {name!r}"
        if name in ("dask", "pandas", "polars", "torch", "xarray"):
            text = f"gpureduce.{name} is a module of its own: write import gpureduce.{name}"
        raise AttributeError(text, name=name, obj=module)
    found = getattr(_load(_HOME_OF[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
