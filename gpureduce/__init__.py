"""Parallel reduction, rung by rung.

`sum` adds up an array by the strategy you name, on a GPU or on an emulated one, and says how long
it took; `strategies` lists the rungs of the ladder and what each one teaches;
`explain` counts what a rung does and why the next one is faster.
"""

from __future__ import annotations

from importlib.metadata import version as _version

from gpureduce import emulator
from gpureduce._backends import Device, build_info, devices, free_scratch
from gpureduce._backends import warn_of_threads as _warn_of_threads
from gpureduce._calibration import Calibration, calibrate, calibration
from gpureduce._choices import Choice, fast_table
from gpureduce._explain import Comparison, Explanation, explain
from gpureduce._races import Race, Races, races
from gpureduce._registry import Strategy, strategies
from gpureduce._results import SumResult, Timing
from gpureduce._sources import Source, source
from gpureduce._sum import sum
from gpureduce.accumulator import Accumulator
from gpureduce.bench import Measurement, benchmark
from gpureduce.bounds import error_bound
from gpureduce.errors import CudaError
from gpureduce.integrals import Integrand, integrands, integrate, trapezoid
from gpureduce.tuning import Tuned, tune

__version__ = _version("gpureduce")
_warn_of_threads()

__all__ = [
    "Accumulator",
    "Calibration",
    "Choice",
    "Comparison",
    "CudaError",
    "Device",
    "Explanation",
    "Integrand",
    "Measurement",
    "Race",
    "Races",
    "Source",
    "Strategy",
    "SumResult",
    "Timing",
    "Tuned",
    "benchmark",
    "build_info",
    "calibrate",
    "calibration",
    "devices",
    "emulator",
    "error_bound",
    "explain",
    "fast_table",
    "free_scratch",
    "integrands",
    "integrate",
    "races",
    "source",
    "strategies",
    "sum",
    "trapezoid",
    "tune",
]
