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
