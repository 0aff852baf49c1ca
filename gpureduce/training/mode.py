"""`gpureduce.torch.reproducible`: in it, PyTorch's sums of floats have the same bits in every run.

PyTorch's dispatcher calls our functions in place of its own kernels for the operators of
replaced.py. They are registered for a dispatch key that PyTorch has for others to use and that lies
below autograd. A thread includes the key while it is in the mode: the threads that then run its
backward passes include it, too, and others do not. Without the key the dispatcher passes our
functions by, at no cost.

Compiled programs are traced without the key. There, the functions are decompositions, which
Inductor applies before it makes kernels.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch._functorch.config
from torch._C import _dispatch_tls_set_dispatch_key_included as _include
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from gpureduce.core.checks import shown
from gpureduce.training import reductions, replaced, rows
from gpureduce.training.report import Report

_KEY = "Fake"  # made for fake tensors outside of PyTorch, which has its own in another place now
_STATE = "gpureduce.reproducible"  # of a thread, in what PyTorch hands on to backward threads
_lock = threading.Lock()


class _State(NamedTuple):
    devices: tuple[str, ...]  # "cpu", "cuda", "cuda:1"; empty: all
    report: Report | None


def _state() -> _State | None:
    """The state of the calling thread; None outside of the mode."""
    found: _State | None = None
    if torch._C._is_key_in_tls(_STATE):
        found = torch._C._get_obj_in_tls(_STATE)
    return found


def _set_state(state: _State | None) -> None:
    count = sys.getrefcount(state)
    torch._C._stash_obj_in_tls(_STATE, state)
    if sys.getrefcount(state) == count:  # PyTorch 2.11 does not count the reference that it keeps
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(state))


def _applies(state: _State | None, x: Any) -> bool:
    x = x[0] if type(x) is list and x else x  # of several tensors
    if state is None or not (x.is_cuda or x.is_cpu):  # "meta": while it is compiled
        return False
    if x.layout is not torch.strided or x.is_nested:
        return False
    return not state.devices or x.device.type in state.devices or str(x.device) in state.devices


def _are_plain(args: Any) -> bool:
    """Whether no argument is a tensor of a subclass."""
    for x in args:
        kind = type(x)
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            continue
        if isinstance(x, torch.Tensor) or (kind is list and not _are_plain(x)):
            return False
    return True


# --- the operators -----------------------------------------------------------------------------


def _add_now(table: torch.Tensor, ids: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
    rows.add(table, ids, more)
    return table


def _add_when_compiled(table: torch.Tensor, ids: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
    return torch.ops.gpureduce.add_rows(table, ids, more)


def _add_to_copy(table: torch.Tensor, ids: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
    return _add_now(table.clone(memory_format=torch.contiguous_format), ids, more)


def _functional(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: torch.Tensor, *args: Any, **how: Any) -> Any:
        found = function(_add_to_copy, x, *args, **how)
        return found if found is NotImplemented else found.contiguous()

    return run


def _in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: torch.Tensor, *args: Any, **how: Any) -> Any:
        at = x.untyped_storage().data_ptr()
        shares = any(torch.is_tensor(one) and one.untyped_storage().data_ptr() == at and at
                     for one in args)  # fmt: skip
        if shares or torch._debug_has_internal_overlap(x) == 1:
            return NotImplemented  # PyTorch raises an error if elements really are the same
        found = function(_add_now, x, *args, **how)
        if found is NotImplemented:
            return found
        if found.data_ptr() != x.data_ptr():  # the table was a copy
            x.copy_(found)
        return x

    return run


def _functions() -> Iterator[tuple[Any, Callable[..., Any]]]:
    """The operators, and what runs in their places."""
    for operator, (in_place, function) in replaced.PAIRS.items():
        yield operator, _functional(function)
        yield in_place, _in_place(function)
    for operator, function in replaced.NEW.items():
        yield operator, functools.partial(function, _add_now)
    for operator, function in replaced.REDUCTIONS.items():
        yield operator, functools.partial(function, reductions)


def _kernel(operator: Any, function: Callable[..., Any], key: Any) -> Callable[..., Any]:
    """What the dispatcher calls: the function, or the operator's own kernel."""
    above = torch._C.DispatchKeySet(key)
    below = torch._C._dispatch_keyset_full_after(key)

    def run(keys: Any, *args: Any, **how: Any) -> Any:
        state = _state()
        with torch._C._ExcludeDispatchKeyGuard(above):
            if _applies(state, args[0]) and _are_plain(args):
                found = function(*args, **how)
                if found is not NotImplemented:
                    if state is not None and state.report is not None:
                        state.report.ours[str(operator)] += 1
                    return found
            return operator.redispatch(keys & below, *args, **how)

    return run


@functools.cache
def _registered() -> tuple[Any, ...]:
    """Registers our functions. Returns what keeps them."""
    key = torch._C._dispatch_key_parse(_KEY)
    others = torch.library.Library("_", "IMPL", _KEY)
    others.fallback(torch.library.fallthrough_kernel)
    library = torch.library.Library("aten", "IMPL")
    for operator, function in _functions():
        kernel = _kernel(operator, function, key)
        library.impl(operator.name().removeprefix("aten::"), kernel, _KEY, with_keyset=True)
    _decompose()
    return key, others, library


def _decompose() -> None:
    """Makes the functions decompositions of compiled programs, in threads that are in the mode."""
    # Inductor has lowerings for some of them, and refuses decompositions of these if it finds any.
    from torch._inductor import lowering
    from torch._inductor.decomposition import decompositions, fast_random_decomps

    fast_random_decomps.cache_clear()  # a copy, from when this process first compiled a program
    every = replaced.NEW | {one: function for one, (_, function) in replaced.PAIRS.items()}
    for of, some in ((_add_when_compiled, every), (torch.ops.gpureduce, replaced.REDUCTIONS)):
        for operator, function in some.items():
            own = decompositions.get(operator)
            if own is None and operator not in lowering.lowerings:
                continue  # such an operator is called as in eager programs: it is ours then
            how = functools.partial(function, of), own, operator in replaced.REDUCTIONS
            decompositions[operator] = _decomposition(*how)


def _decomposition(
    function: Callable[..., Any], own: Callable[..., Any] | None, is_reduction: bool
) -> Callable[..., Any]:
    def run(*args: Any, **how: Any) -> Any:
        found = NotImplemented
        # Sums within other decompositions, as of softmax, are PyTorch's in eager programs, too.
        is_within = is_reduction and getattr(get_proxy_mode(), "decomp_layers", 0) > 1
        if not is_within and _applies(_state(), args[0]):
            found = function(*args, **how)
        if found is NotImplemented and own is not None:
            found = own(*args, **how)
        return found

    return run


# --- PyTorch's own switches --------------------------------------------------------------------

_found: list[tuple[Any, ...]] = []  # what they were at each entry into the mode, of any thread


def _switches() -> tuple[Any, ...]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
        torch.backends.cudnn.benchmark,
        torch._functorch.config.enable_autograd_cache,
    )


def _set_switches(found: tuple[Any, ...]) -> None:
    torch.use_deterministic_algorithms(found[0], warn_only=found[1])
    torch.utils.deterministic.fill_uninitialized_memory = found[2]
    torch.backends.cudnn.benchmark = found[3]
    torch._functorch.config.enable_autograd_cache = found[4]


def _enter_process() -> None:
    """Sets the switches of the process when the first thread enters the mode.

    Compiled programs are compiled again, because they depend on these. PyTorch's cache of compiled
    programs does not know our operators, so it is not in use.
    """
    with _lock:
        _registered()
        _found.append(_switches())
        if len(_found) == 1:
            is_on, only_warns, *_ = _found[0]
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            _set_switches((True, only_warns or not is_on, False, False, False))


def _leave_process() -> None:
    with _lock:
        first = _found.pop()
        if not _found:
            _set_switches(first)


# --- the mode ----------------------------------------------------------------------------------


class reproducible(contextlib.ContextDecorator):
    """PyTorch programs inside add floats with the same bits in every run and in any batch.

    ``with gpureduce.torch.reproducible(): ...``, or as a decorator. Sums of index_add, index_put
    with ``accumulate=True``, scatter_add, scatter_reduce, segment_reduce, bincount, and the
    gradients of indexing, gather, embedding and embedding_bag are real-number sums, rounded once.
    So are the results of sum, nansum, mean, var, std, cumsum, dot and vector norms of order 1 and
    2, and the sum of exponentials in logsumexp. The means of scatter_reduce and segment_reduce are
    rounded twice, from a sum in float64. For all other operators PyTorch's own deterministic
    algorithms are switched on. Where PyTorch has none, it warns.

    Parameters
    ----------
    device
        ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or several of them: only tensors there. All by default.
    report
        Whether to list the operators that ran: ``with reproducible(report=True) as report: ...``,
        then ``print(report)``. It takes time.

    Notes
    -----
    The mode is of the calling thread, and of the threads that run its backward passes. PyTorch's
    switches are of the process: ``torch.use_deterministic_algorithms(True, warn_only=True)``,
    ``torch.backends.cudnn.benchmark = False``. They are put back when the last thread leaves.
    """

    def __init__(self, device: str | tuple[str, ...] | None = None, *, report: bool = False):
        names = () if device is None else device if isinstance(device, tuple) else (device,)
        for name in names:
            try:
                torch.device(str(name) if isinstance(name, (str, torch.device)) else "")
            except RuntimeError:
                raise ValueError(
                    f"device must be a device of PyTorch, such as 'cuda', not {shown(name)}"
                ) from None
        self._devices, self._reports = tuple(map(str, names)), report

    def _recreate_cm(self) -> reproducible:  # for each call of a decorated function
        return reproducible(self._devices, report=self._reports)

    def __enter__(self) -> Report | None:
        report = Report() if self._reports else None
        _enter_process()
        _entered().append((_state(), report))
        _set_state(_State(self._devices, report))
        _include(_registered()[0], True)
        return None if report is None else report.__enter__()

    def __exit__(self, *error: object) -> None:
        before, report = _entered().pop()
        if report is not None:
            report.__exit__(*error)
        _set_state(before)
        _include(_registered()[0], before is not None)
        _leave_process()


_thread = threading.local()


def _entered() -> list[tuple[_State | None, Report | None]]:
    """What this thread was in before it entered each mode that it is in, and that mode's report."""
    if not hasattr(_thread, "entered"):
        _thread.entered = []
    found: list[tuple[_State | None, Report | None]] = _thread.entered
    return found


def enable(device: str | tuple[str, ...] | None = None) -> None:
    """Enter `reproducible` in this thread, until `disable`."""
    reproducible(device).__enter__()


def disable() -> None:
    """Leave the mode that this thread has entered last."""
    if not _entered():
        raise RuntimeError("this thread is in no mode of gpureduce.torch that disable() could end")
    reproducible().__exit__()
