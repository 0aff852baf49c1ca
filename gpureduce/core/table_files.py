"""The tables of `fast`, as rows and as files: kernel, block and grid by input size.

`tune` (tuning.py) measures a GPU and keeps its table in the user's configuration folder. Tables
for some GPUs come with the package. Other GPUs use the defaults of csrc/engine/fast_table.c.
"""

from __future__ import annotations

import functools
import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from gpureduce import _host
from gpureduce.core import json_files, registry
from gpureduce.core.checks import one_of, whole

LARGEST = 2**64 - 1
_MOST_GRID, _MOST_PER_SM = 2**20, 1024  # with more, empty blocks and their sums cost milliseconds
_SHIPPED = Path(__file__).parent / "tables"


@dataclass(frozen=True)
class Choice:
    """One row of the table behind `fast`: the kernel for inputs of up to `max_bytes`.

    The first row that fits the input, and that the card can run, is used.

    Attributes
    ----------
    max_bytes
        The largest input, in bytes.
    element_bytes
        The width of its elements; 0 for any width.
    strategy, block
        The kernel, and its threads per block.
    grid
        The number of blocks; 0 to follow `blocks_per_sm`.
    blocks_per_sm
        Blocks per multiprocessor, but no more than there is work for. If this and `grid` are 0, the
        strategy's own default is used.

    Examples
    --------
    >>> import gpureduce
    >>> row = gpureduce.Choice(max_bytes=8192, element_bytes=0, strategy="one_block", block=128)
    >>> row.launch(4096, sms=132)  # block, and grid: 0 for the strategy's own
    (128, 0)
    """

    max_bytes: int
    element_bytes: int
    strategy: str
    block: int
    grid: int = 0
    blocks_per_sm: int = 0

    def launch(self, nbytes: int, sms: int) -> tuple[int, int]:
        """Block and grid, computed as the engine does."""
        most = self.blocks_per_sm * sms
        return self.block, min(most, nbytes // (self.block * 16) + 1) if most else self.grid


def _check(choice: Choice) -> None:
    """Raises for the first invalid field of a row."""
    whole("max_bytes", choice.max_bytes, 1, LARGEST)
    if choice.element_bytes not in (0, 1, 2, 4, 8):
        raise ValueError(f"element_bytes must be 0, 1, 2, 4 or 8, not {choice.element_bytes}")
    traits = _kernels()[one_of("strategy", choice.strategy, _kernels())].traits
    whole("block", choice.block, 32, 1024, step=32)
    whole("blocks_per_sm", choice.blocks_per_sm, 0, _MOST_PER_SM)
    whole("grid", choice.grid, 0, _MOST_GRID)
    is_cluster, is_alone = traits & _host.CLUSTER, traits & _host.ALONE
    if traits & _host.MANY and not (is_cluster or is_alone or traits & _host.COOPERATIVE):
        return  # takes any grid; those below refuse others for all or most inputs
    of = f"for {choice.strategy}, not"
    if choice.blocks_per_sm:
        raise ValueError(f"blocks_per_sm must be 0 {of} {choice.blocks_per_sm}")
    if is_cluster and not is_alone:
        if choice.grid % _host.CLUSTER_BLOCKS:
            raise ValueError(
                f"grid must be a multiple of {_host.CLUSTER_BLOCKS} {of} {choice.grid}"
            )
        return
    grids = [0, 1] if is_alone else [0]
    if is_cluster:
        grids = [0, _host.CLUSTER_BLOCKS, 2 * _host.CLUSTER_BLOCKS]
    if choice.grid not in grids:
        raise ValueError(f"grid must be {' or '.join(map(str, grids))} {of} {choice.grid}")


@functools.cache
def _kernels() -> dict[str, registry.Strategy]:
    """The kernels for `fast`: deterministic ones that add up every dtype."""
    return {
        row.name: row
        for row in registry.strategies()
        if row.kind == "kernel" and row.deterministic and len(row.dtypes) == len(registry.DTYPES)
    }


def as_rows(choices: Sequence[Choice]) -> list[tuple[int, int, int, int, int, int]]:
    """Converts the table to rows for C. Raises ValueError for an invalid row."""
    for i, choice in enumerate(choices):
        try:
            _check(choice)
        except (TypeError, ValueError) as error:
            raise ValueError(f"rows[{i}].{error}") from None
    return [
        (c.max_bytes, c.element_bytes, registry.find(c.strategy).index, c.block, c.grid,
         c.blocks_per_sm)
        for c in choices
    ]  # fmt: skip


def _file_name(card: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", card.lower()).strip("-") + ".json"


def user_file(card: str) -> Path:
    """The path of the user's own table for a GPU."""
    return _user_folder() / _file_name(card)


def _user_folder() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "gpureduce"


def _own_folder() -> Path | None:
    """The user's configuration folder; None for a user without a home folder."""
    try:
        return _user_folder()
    except RuntimeError:
        return None


def load(path: Path) -> tuple[Choice, ...]:
    """Reads a table from a file. Raises ValueError that names the file and the wrong field."""
    record = json_files.read_record(path, "fast_table")
    with json_files.naming(path):
        choices: tuple[Choice, ...] = json_files.field(record, "rows", tuple[Choice, ...])
        as_rows(choices)
    return choices


def load_for(module: ModuleType, cards: Sequence[str]) -> None:
    """Sets each GPU's table. The user's own table precedes the one in the package."""
    for index, card in enumerate(cards):
        for folder in (_own_folder(), _SHIPPED):
            path = folder and folder / _file_name(card)
            # os.path.exists() returns False for a folder without read permission; no error.
            if path and os.path.exists(path):
                _try(module, index, path)
                break


def _try(module: ModuleType, index: int, path: Path) -> None:
    try:
        choices = load(path)
        with json_files.naming(path):
            module.set_choices(index, as_rows(choices))
    except (OSError, ValueError) as error:
        warnings.warn(f"'fast' uses its built-in table: {error}", RuntimeWarning, stacklevel=2)
