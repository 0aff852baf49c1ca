"""Charts of sums by key: atomics that meet, and runs that drift apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpureduce.emulator.explain import Explanation
from gpureduce.plot.layout import foot, label_ends, looks_of, page
from gpureduce.plot.panels import panels


def contention(explained: Sequence[Explanation], labels: Sequence[str], title: str = "") -> Any:
    """The atomics of sums by key, and how many of them meet, as `gpureduce.explain` counts them.

    >>> import gpureduce, numpy as np
    >>> from gpureduce import plot
    >>> keys, names = np.arange(2048) % 10, ["key_atomic", "key_warp"]
    >>> found = [gpureduce.explain(n, dtype="float32", segment_ids=keys) for n in names]
    >>> figure = plot.contention(found, names)
    """
    table = {}
    for memory in ("global", "shared"):
        found = [one.contention[memory] for one in explained]
        if any(one.atomics for one in found):
            where = f"in {memory} memory"
            table[f"atomics\n{where}"] = {"": [one.atomics for one in found]}
            table[f"most to one address\n{where}"] = {"": [one.most for one in found]}
            table[f"turns of lanes\n{where}"] = {"": [one.turns for one in found]}
    if not table:
        raise ValueError("there is nothing to draw: none of these sums has an atomic")
    return panels(table, labels, title,
                  "Counted on the emulator: the same on every machine. No times.",
                  [one.strategy for one in explained])  # fmt: skip


def apart(distances: Mapping[str, Sequence[float]], title: str = "", note: str = "") -> Any:
    """How far runs of a simulation are apart, by step, on a logarithmic scale.

    Runs with the same bits are 0 apart: their lines are drawn at the foot.

    >>> from gpureduce import plot
    >>> figure = plot.apart({"key_atomic": [0, 1e-6, 1e-3], "exact": [0, 0, 0]})
    """
    figure, (ax,) = page(8, 4.5)
    least = min((v for row in distances.values() for v in row if v > 0), default=1.0)
    floor, ends = least / 30, []
    looks = looks_of(distances)
    for name, row in distances.items():
        ink = looks[name]["color"]
        values = np.maximum(np.asarray(row, np.float64), floor)
        ax.plot(values, color=ink, linewidth=1.6, linestyle="-" if max(row) > 0 else "--")
        said = f"{name}: {row[-1]:.2g}" if max(row) > 0 else f"{name}: 0 at every step"
        ends.append((len(row) - 1, float(values[-1]), said, ink))
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set_xlabel("steps")
    ax.set_ylabel("cells between an electron's two places")
    ax.set_title(title, loc="left", fontsize=11)
    label_ends(ax, ends)
    return foot(figure, note)
