"""The table behind `fast`: which kernel, block and grid for how many bytes.

`tune` (tuning.py) measures a card and keeps its table in the user's configuration folder; tables
for some cards come with the package; other cards use the defaults of csrc/engine/choice.c.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from gpureduce import _backends, _registry

LARGEST = 2**64 - 1
_SHIPPED = Path(__file__).parent / "tables"


@dataclass(frozen=True)
class Choice:
    """One row of the table: what to take for inputs of up to `max_bytes`.

    Their elements are `element_bytes` wide (0: of any width). The first row that fits, and that the
    card can run, is taken. The grid is `grid`, or `blocks_per_sm` times the card's multiprocessors
    but no more than there is work for, or, where both are 0, the strategy's own.
    """

    max_bytes: int
    element_bytes: int
    strategy: str
    block: int
    grid: int = 0
    blocks_per_sm: int = 0

    def launch(self, nbytes: int, sms: int) -> tuple[int, int]:
        """Block and grid, as the engine works them out."""
        most = self.blocks_per_sm * sms
        return self.block, min(most, nbytes // (self.block * 16) + 1) if most else self.grid


def _rows(choices: Sequence[Choice]) -> list[tuple[int, int, int, int, int, int]]:
    return [
        (c.max_bytes, c.element_bytes, _registry.find(c.strategy).index, c.block, c.grid,
         c.blocks_per_sm)
        for c in choices
    ]  # fmt: skip


def use(choices: Sequence[Choice], device: _backends.Device) -> None:
    """Have `fast` use a table on a device, in this process; an empty one for the defaults."""
    _backends.module_of(device).set_choices(device.index, _rows(choices))


def fast_table(device: str | None = None) -> list[Choice]:
    """The table that `fast` uses on a device.

    Arrays in host memory of 64 KiB to 16 MiB are read over the bus, which is what takes the time:
    those are added up by `tiles`, whatever stands here.

    >>> import gpureduce
    >>> gpureduce.fast_table("emulator")[0].strategy
    'one_block'
    """
    chosen = _backends.choose_device(device)
    names = list(_registry.STRATEGIES)
    rows = _backends.module_of(chosen).get_choices(chosen.index)
    return [Choice(r[0], r[1], names[r[2]], *r[3:]) for r in rows]


def _file_name(card: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", card.lower()).strip("-") + ".json"


def user_file(device: _backends.Device) -> Path:
    """Where the table of this user's card is kept."""
    return _user_folder() / _file_name(device.name)


def _user_folder() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "gpureduce"


def _own_folder() -> Path | None:
    """The same, if there is one: some users have no home."""
    try:
        return _user_folder()
    except RuntimeError:
        return None


def save(choices: Sequence[Choice], device: _backends.Device, path: Path) -> None:
    """Write a table down, with where and when it was made."""
    from gpureduce.record import provenance

    path.parent.mkdir(parents=True, exist_ok=True)
    kept = provenance("fast_table", device) | {"rows": [asdict(c) for c in choices]}
    path.write_text(json.dumps(kept, indent=1) + "\n")


def load(path: Path) -> tuple[Choice, ...]:
    """The table in a file."""
    try:
        rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"]
        choices = tuple(Choice(**row) for row in rows)
        _rows(choices)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is no table for fast: {error}") from error
    return choices


def load_for(module: ModuleType, cards: Sequence[str]) -> None:
    """Give each card its table, the user's own before the one that comes with the package."""
    for index, card in enumerate(cards):
        for folder in (_own_folder(), _SHIPPED):
            path = folder and folder / _file_name(card)
            if path and os.path.exists(path):  # which a folder that is closed to us does not fail
                _try(module, index, path)
                break


def _try(module: ModuleType, index: int, path: Path) -> None:
    try:
        module.set_choices(index, _rows(load(path)))
    except (OSError, ValueError, TypeError, OverflowError) as error:
        warnings.warn(f"fast goes by its defaults: {error}", RuntimeWarning, stacklevel=2)
