"""Running sums of arrays on a GPU, which stay on that GPU: csrc/kernels/running."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from gpureduce import _host
from gpureduce.core import device_results, gpu_arrays, groups
from gpureduce.core.checks import flag

_RUNNING, _BACK, _FROM_ZERO = 1, 2, 4  # csrc/engine/groups.h


def cumsum(
    a: Any, axis: int | None, dtype: npt.DTypeLike | None, out: Any, reverse: object,
    include_initial: object, device: str | None = None,
) -> Any:  # fmt: skip
    """See gpureduce.exact.cumsum."""
    module, like = gpu_arrays.needed_module(a, device), type(a)
    library = device_results.library_of(like, module)
    if axis is None:
        if not hasattr(a, "reshape"):
            raise TypeError(f"{like.__name__} has no reshape, so cumsum of it needs an axis")
        a = a.reshape(-1)
    view = gpu_arrays.ask(module.view, a, gpu_arrays.stream_number(library.stream(a)), False)
    if view is None:
        raise TypeError(f"{like.__name__} does not lie on a GPU")
    along = groups.one_axis(axis, len(view.shape)) if axis is not None else 0
    more = flag("include_initial", include_initial)
    shape = tuple(n + (more and i == along) for i, n in enumerate(view.shape))
    conversion, name = device_results.conversion_of(view.kind, view.bytes, dtype, True, _host.AXES)
    how = {
        "axes": groups.bits((along,)),
        "running": _RUNNING + _BACK * flag("reverse", reverse) + _FROM_ZERO * more,
    }
    request = device_results.request_of(
        module, (view.kind, view.bytes), conversion, device_results.target_of(conversion, name),
        False, 0, how,
    )  # fmt: skip
    if out is not None:
        device_results.check_out(out, like, name, shape)
    entries = library.maker(shape, name, view.device)(view.stream) if out is None else out
    module.run(request, view, None, entries)
    return library.result(entries) if out is None else out
