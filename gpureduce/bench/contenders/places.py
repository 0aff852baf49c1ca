"""Where sums along axes and by segment are timed: on a card beside PyTorch, or elsewhere."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from gpureduce.bench import libraries
from gpureduce.bench.clocks import OnCard, Run, of_each
from gpureduce.bench.runner import Contender
from gpureduce.core import devices


@dataclass(frozen=True)
class Place:
    """A card, the emulator or the processors, and the libraries that are measured there.

    On a card, PyTorch holds the arrays, and its events give the times.
    """

    device: str | None
    names: tuple[str, ...]
    torch: Any = None
    card: OnCard | None = None

    @property
    def on(self) -> devices.Device | None:
        """The device; None for the processors."""
        return None if self.device == "cpu" else devices.choose_device(self.device)

    @property
    def own(self) -> str | None:
        """The device that our sums are given. Arrays on a card need none."""
        return None if self.card else self.device

    def put(self, array: Any) -> Any:
        """A NumPy array where it is added up."""
        return libraries.torch_tensor(self.torch, array).cuda() if self.card else array

    def contender(
        self, name: str, run: Run, *, own_stream: bool = False, count: int = 1, **more: Any
    ) -> Contender:
        """A contender whose runs make `count` sums each.

        Work on streams of a library's own is timed by the processor's clock.
        """
        by_clock = self.card is None or own_stream
        if self.card is None:
            timed = of_each(run)
        else:
            timed = self.card.by_clock(run) if own_stream else self.card.by_events(run)
        return Contender(
            name,
            lambda repeats: [us / count for us in timed(repeats)],
            run,
            {"source": "perf_counter" if by_clock else "cuda_event", **more},
            may_fail=not name.startswith(("exact", "fast", "cpu")),  # ours must not
        )

    def captured(self, run: Run) -> Run:
        """A replay of the call's work as a CUDA graph, on a card."""
        if self.card is None:
            return run
        run()
        self.torch.cuda.synchronize()
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            run()

        def replay(kept: Run = run) -> None:  # the graph uses its arrays, but owns none
            graph.replay()

        return replay

    def on_stream(self, run: Run) -> Run:
        """CuPy's call on PyTorch's stream."""
        cupy = libraries.load("cupy")[1]
        stream = cupy.cuda.ExternalStream(self.torch.cuda.current_stream().cuda_stream)

        def call() -> Any:
            with stream:
                return run()

        return call


def place_of(
    device: str | None, option: str, elsewhere: Sequence[str], default: str | None = None
) -> Place:
    """The place. `elsewhere` names the libraries of processors; without a card, `default` is it."""
    on_card = device != "cpu" and devices.choose_device(device).backend == "cuda"
    wanted = ("torch", "cupy", "jax") if on_card else elsewhere
    names = tuple(name for name in wanted if importlib.util.find_spec(name))
    if not on_card:
        return Place(device or default, names)
    if "torch" not in names:
        raise ValueError(f"bench {option} on a GPU needs PyTorch, whose events measure the time")
    torch = libraries.load("torch")[1]
    return Place(device, names, torch, OnCard(torch))


def unable(name: str, error: Exception) -> Contender:
    """Stands for a library that cannot take the arrays: the record says why, instead of a time."""

    def fail() -> NoReturn:
        raise error

    return Contender(name, lambda repeats: fail(), fail, may_fail=True)


def close_to_first(
    case: object, n: int, skipped: Sequence[str] = (), part: Callable[[Any], Any] = lambda x: x
) -> Callable[[str, Any], None]:
    """Raises if results of `n` numbers are far from the first: another thing would be measured."""
    firsts: list[Any] = []

    def compare(name: str, found: Any) -> None:
        if name in skipped:
            return
        found = part(getattr(found, "value", found))
        if hasattr(found, "cpu"):
            found = found.cpu().numpy()
        found = np.asarray(found.get() if hasattr(found, "get") else found)
        firsts[:] = firsts or [found]
        if not np.allclose(found, firsts[0], rtol=1e-3, atol=1e-2 * n**0.5):
            raise ValueError(f"{name} does not add up {case}")

    return compare
