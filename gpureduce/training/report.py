"""Which operators of a program ran: ours, PyTorch's, or some that may differ between runs."""

from __future__ import annotations

import collections
import warnings
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

_WARNING = "does not have a deterministic implementation"


class Report(TorchDispatchMode):  # type: ignore[misc]
    """Counts of the operators that ran, by name.

    Attributes
    ----------
    ours
        Operators whose sums gpureduce made, rounded once.
    torchs
        PyTorch's own, which have the same bits in every run: by themselves, or by the deterministic
        algorithms that the mode switches on.
    neither
        Those of which PyTorch has warned that it has no deterministic implementation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ours: collections.Counter[str] = collections.Counter()
        self.torchs: collections.Counter[str] = collections.Counter()
        self.neither: collections.Counter[str] = collections.Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, before = str(func), self.ours.total()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found = func(*args, **(kwargs or {}))
        is_neither = False
        for one in seen:
            if _WARNING in str(one.message):
                is_neither = True
            else:
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        if name.startswith("gpureduce."):
            self.ours[name] += 1
        elif is_neither:
            self.neither[name] += 1
        elif self.ours.total() == before:
            self.torchs[name] += 1
        return found

    def __str__(self) -> str:
        lines = []
        for title, counts in (
            ("gpureduce, each sum rounded once", self.ours),
            ("PyTorch, the same in every run", self.torchs),
            ("PyTorch, may differ between runs", self.neither),
        ):
            lines.append(f"{title}: {'' if counts else 'none'}")
            lines += [f"  {count:6} {name}" for name, count in counts.most_common()]
        return "\n".join(lines)
