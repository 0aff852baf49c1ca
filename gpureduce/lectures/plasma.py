"""A small plasma simulation: each step goes on with sums by key of the step before.

Electrons of two streams fly through each other. In each step they leave their charge in the cells
of a grid, which is a sum by segment; the charge makes an electric field; and the field accelerates
the electrons. The streams are unstable, so small differences grow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
_DT, _STREAM, _SPREAD = 0.1, 5.0, 0.1  # plasma periods / 2 pi, cells per such time


@dataclass(frozen=True)
class Streams:
    """The electrons' positions after each step, in cells, and the energy of the field.

    >>> from gpureduce import lectures
    >>> import numpy as np
    >>> run = lectures.two_streams(lambda charge, cell, cells: np.bincount(cell, charge, cells), 3)
    >>> run.positions.shape, float(run.apart(run).max())
    ((4, 1024), 0.0)
    """

    positions: Array = field(repr=False)
    energies: Array = field(repr=False)
    cells: int

    def apart(self, other: Streams) -> Array:
        """By step, how far the electron that differs most is from itself in the other run."""
        way = np.abs(self.positions.astype(np.float64) - other.positions)
        return np.asarray(np.minimum(way, self.cells - way).max(axis=1))


def _field(charge: Array) -> Array:
    """The electric field of the cells: the integral of the charge, by Fourier transform."""
    waves = np.fft.rfft(charge.astype(np.float64))
    k = 2 * np.pi * np.fft.rfftfreq(charge.size)
    waves[0], k[0] = 0, 1  # the background is neutral
    return np.fft.irfft(waves / (1j * k), charge.size)


def two_streams(
    add: Callable[[Array, Array, int], Any], steps: int = 1000, electrons: int = 1024,
    cells: int = 64, seed: int = 1,
) -> Streams:  # fmt: skip
    """Run the simulation. ``add(charge, cell, cells)`` returns the charge of each cell.

    All else is computed in the same order in every run.

    >>> import gpureduce
    >>> from gpureduce import lectures
    >>> def add(charge, cell, cells):
    ...     return gpureduce.segment_sum(charge, cell, num_segments=cells).value
    >>> first, second = (lectures.two_streams(add, steps=10) for _ in range(2))
    >>> float(first.apart(second).max())
    0.0
    """
    rng = np.random.default_rng(seed)
    x = (np.arange(electrons) * cells / electrons).astype(np.float32)
    v = np.where(np.arange(electrons) % 2, _STREAM, -_STREAM) + _SPREAD * rng.standard_normal(
        electrons
    )
    v = v.astype(np.float32)
    positions, energies = [x], [0.0]
    for _ in range(steps):
        cell = x.astype(np.int32) % cells
        right = x - np.floor(x)  # the share of the charge that the next cell gets
        shares = np.concatenate([1 - right, right])
        where = np.concatenate([cell, (cell + 1) % cells])
        charge = 1 - np.asarray(add(shares, where, cells)) * np.float32(cells / electrons)
        force = _field(charge)
        at = force[cell] * (1 - right) + force[(cell + 1) % cells] * right
        v = (v - _DT * at).astype(np.float32)
        x = ((x + _DT * v) % cells).astype(np.float32)
        positions.append(x)
        energies.append(float((force**2).sum() / 2))
    return Streams(np.array(positions), np.array(energies), cells)
