"""The table that `fast` uses on a device: kernel, block and grid by input size."""

from __future__ import annotations

from collections.abc import Sequence

from gpureduce.core import devices, registry
from gpureduce.core.table_files import Choice, as_rows


def use(choices: Sequence[Choice], device: devices.Device) -> None:
    """Sets the table of `fast` on a device, for this process. An empty table means the defaults."""
    devices.module_of(device).set_choices(device.index, as_rows(choices))


def fast_table(device: str | None = None) -> list[Choice]:
    """The table by which the strategy `fast` chooses kernel, block and grid on a device.

    >>> import gpureduce
    >>> gpureduce.fast_table("emulator")[0].strategy
    'one_block'
    """
    chosen = devices.choose_device(device)
    names = list(registry.STRATEGIES)
    rows = devices.module_of(chosen).get_choices(chosen.index)
    return [Choice(r[0], r[1], names[r[2]], *r[3:]) for r in rows]
