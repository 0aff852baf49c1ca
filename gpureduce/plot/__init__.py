"""Charts of measurements and counts; needs matplotlib: ``pip install 'gpureduce[plot]'``."""

from gpureduce.plot.axes import axis_counts, axis_speeds
from gpureduce.plot.charts import (
    bandwidth,
    colour,
    compare,
    heatmap,
    lines,
    speedup,
    spread,
    times,
)
from gpureduce.plot.keys import apart, contention
from gpureduce.plot.panels import beside_cub, counts, exact_cost, panels, profile, why

__all__ = [
    "apart",
    "axis_counts",
    "axis_speeds",
    "bandwidth",
    "beside_cub",
    "colour",
    "compare",
    "contention",
    "counts",
    "exact_cost",
    "heatmap",
    "lines",
    "panels",
    "profile",
    "speedup",
    "spread",
    "times",
    "why",
]
