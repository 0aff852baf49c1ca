"""`CudaError`, the only exception class of gpureduce. All other errors are Python's."""

from __future__ import annotations


class CudaError(RuntimeError):
    """A CUDA call failed, or there is no device to call.

    `name` is CUDA's own name of the error, such as ``"cudaErrorNoDevice"``. The message says which
    call failed, where, and what to do. The next call works, unless the card itself was lost.

    >>> import gpureduce
    >>> try:
    ...     gpureduce.sum([1.0], "cub", device="emulator")
    ... except gpureduce.CudaError as error:
    ...     print(error.name)
    cudaErrorNoDevice
    """

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


def naming(place: str, error: BaseException) -> BaseException:
    """The error with the place before its message, if its type is one that gpureduce raises.

    Others, which a signal handler may have raised, get a note.
    """
    if type(error) in (CudaError, ValueError, TypeError, MemoryError, BufferError):
        text = f"{place}: {error}"
        named = CudaError(text, error.name) if isinstance(error, CudaError) else type(error)(text)
        named.__cause__ = error
        return named
    error.add_note(place)
    return error
