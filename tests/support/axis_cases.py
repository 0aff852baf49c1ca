"""Arrays of all kinds and axes to add them up along."""

from __future__ import annotations

import numpy as np

from cases import numpy_dtype


def random_array(rng, dtype, shape):
    kind = numpy_dtype(dtype)
    if kind.kind == "b":
        return rng.random(shape) < 0.5
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return rng.integers(limits.min, limits.max, shape, kind, endpoint=True)
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-8, 8, shape)
    if kind.kind == "c":
        return (values + 1j * rng.standard_normal(shape)).astype(kind)
    return values.astype(kind)


def refusal(name, array):
    """What a kernel's error says of the rows of this array; None if it takes them."""
    if name == "row_tile" and array[0].nbytes > 512:
        return "row_tile takes rows without gaps, of at most 512"
    if name == "row_packs" and not (array.shape[1] > 1 and array[0].nbytes in (2, 4, 8)):
        return "row_packs needs rows of 2, 4 or 8 bytes"
    if name == "row_group" and array[0].nbytes % 16:
        return "row_group needs rows that begin at a multiple of 16 bytes"
    return None


def laid_out(rng, array):
    """The same shape with other strides: sliced, reversed, transposed, Fortran, broadcast."""
    for _ in range(rng.integers(0, 3)):
        how = rng.integers(0, 6)
        axis = int(rng.integers(0, array.ndim)) if array.ndim else 0
        if how == 0 and array.ndim:
            wide = np.repeat(array, 2, axis=axis)
            array = wide[(slice(None),) * axis + (slice(None, None, 2),)]
        elif how == 1 and array.ndim:
            array = np.flip(array, axis)
        elif how == 2 and array.ndim:
            array = np.asfortranarray(array)
        elif how == 3 and array.ndim:
            order = rng.permutation(array.ndim)
            array = np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))
        elif how == 4 and array.ndim and array.shape[axis] > 0:
            one = array[(slice(None),) * axis + (slice(0, 1),)]
            array = np.broadcast_to(one, array.shape)
        elif how == 5 and array.dtype.name != "bfloat16":
            array = array.astype(array.dtype.newbyteorder())
    return array


def random_axis(rng, dims):
    how = rng.integers(0, 4)
    if how == 0 or dims == 0:
        return None if rng.random() < 0.5 else ()
    if how == 1:
        return int(rng.integers(-dims, dims))
    some = rng.permutation(dims)[: rng.integers(0, dims + 1)]
    return tuple(int(i) - (dims if rng.random() < 0.3 else 0) for i in some)
