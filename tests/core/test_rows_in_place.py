"""Rows that are added to rows of an array on a GPU, in place: each sum is rounded once."""

from __future__ import annotations

import numpy as np
import pytest

import gpureduce
from cases import numpy_dtype
from gpureduce.core import devices, gpu_arrays, segments_on_device
from producers import on_device

FLOATS = ["float16", "bfloat16", "float32", "float64", "complex64"]
# Rows of the table, rows to add, numbers per row: fewer rows than the table has, and more.
SHAPES = [(5, 0, 40), (1, 3, 1), (50, 7, 33), (7, 50, 64), (3000, 40, 128), (6000, 1500, 32),
          (9, 5000, 40), (3, 500, 520), (40, 9, 3), (3, 4000, 4), (2500, 2000, 1), (700, 2000, 128),
          (5000, 3000, 16), (300, 100_000, 1), (2000, 70_000, 2), (90_000, 66_000, 2)]  # fmt: skip


@pytest.fixture(autouse=True)
def emulator(request, monkeypatch):
    if not request.node.get_closest_marker("gpu"):
        monkeypatch.setattr(gpu_arrays, "_module", devices.emulator)


def made(rng, shape, dtype, kind):
    x = rng.standard_normal(shape)
    if kind == "cancelling":
        x = x * 2.0 ** rng.integers(-12, 12, shape)
        x[::2] = np.resize(-x[1::2], x[::2].shape) if x[1::2].size else x[::2]
    if np.dtype(numpy_dtype(dtype)).kind == "c":
        x = x + 1j * x[::-1]
    x = x.astype(numpy_dtype(dtype))
    if kind == "special" and x.size:
        some = x.reshape(-1)[:: max(1, x.size // 5)]
        some[:] = np.resize([np.inf, -np.inf, np.nan], some.shape)
    return x


def wanted(table, ids, rows):
    """By processors: the table's rows are elements as the others are."""
    both, count = np.concatenate([rows, table]), len(table)
    every = np.concatenate([ids, np.arange(count)])
    found = gpureduce.segment_sum(both, every, num_segments=count, dtype=table.dtype).value
    touched = np.zeros(count, bool)
    touched[ids] = True
    table = table.copy()
    table[touched] = found[touched]
    return table, touched


def check(table, ids, rows, to, from_device, ids_there, rows_there):
    want, touched = wanted(table, ids, rows)
    segments_on_device.add_rows(to, ids_there, rows_there)
    found = from_device(to)
    assert found[touched].tobytes() == want[touched].tobytes()
    assert found[~touched].tobytes() == table[~touched].tobytes()


def ids_for(rng, kind, n, m):
    if kind == "skewed":
        return np.minimum((n * rng.random(m) ** 8).astype(np.int64), n - 1)
    ids = rng.integers(0, n, m)
    return np.sort(ids) if kind == "sorted" else ids


@pytest.mark.parametrize("kind", ["usual", "cancelling", "special"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_rows_are_added_in_place(dtype, kind):
    rng = np.random.default_rng(1)
    every, orders = (dtype, kind) == ("float32", "usual"), ("uniform", "skewed", "sorted")
    # Each shape has all orders of ids for usual float32, and one for each other case.
    for number, (n, m, d) in enumerate(SHAPES if every else SHAPES[:13], FLOATS.index(dtype)):
        for of_ids in orders if every else orders[number % 3 :][:1]:
            ids = ids_for(rng, of_ids, n, m)
            table, rows = made(rng, (n, d), dtype, kind), made(rng, (m, d), dtype, kind)
            to = table.copy()
            args = on_device(ids.astype(np.int32) if d % 2 else ids), on_device(rows)
            check(table, ids, rows, on_device(to), lambda _, to=to: to, *args)


@pytest.mark.parametrize(("m", "d"), [(50, 2), (5000, 2), (5000, 40), (9000, 64)])
def test_zeros_of_touched_rows_are_positive(m, d):
    """By each way of adding rows. Rows without an id keep -0.0."""
    ids = np.arange(m) // 2 % 3000
    rows = np.ones((m, d), np.float32)
    rows[1::2], rows[:, 0] = -1, -0.0
    table = np.full((6000, d), -0.0, np.float32)
    to = table.copy()
    check(table, ids, rows, on_device(to), lambda _: to, on_device(ids), on_device(rows))
    assert not np.signbit(to[ids]).any()


def test_rows_anywhere_in_memory():
    rng = np.random.default_rng(2)
    base = rng.standard_normal((60, 130)).astype(np.float32)
    rows = np.asfortranarray(rng.standard_normal((40, 64)).astype(np.float32))
    ids = rng.integers(0, 20, 40)
    for to in (base[::3, 1:65], base[20:40, ::2][:, :64], base[39:19:-1, 66:]):
        table = to.copy()
        check(table, ids, rows, on_device(to), lambda _, to=to: to, on_device(ids), on_device(rows))


@pytest.mark.parametrize("columns", [2, 40])
def test_a_wrong_id_adds_nothing(columns):
    table, rows = np.ones((5, columns), np.float32), np.ones((3, columns), np.float32)
    for wrong in (5, -1):
        to, ids = table.copy(), np.array([0, wrong, 1])
        with pytest.raises(gpureduce.CudaError, match="calls __trap"):
            segments_on_device.add_rows(on_device(to), on_device(ids), on_device(rows))
        assert (to == 1).all()
        with pytest.raises(ValueError, match=rf"segment_ids\[1\] is {wrong}"):
            segments_on_device.add_rows(on_device(to), on_device(ids), on_device(rows), True)
        assert (to == 1).all()


def test_the_table_has_the_dtype_of_the_rows():
    ids, rows = on_device(np.zeros(3, int)), on_device(np.ones((3, 40), np.float32))
    with pytest.raises(TypeError, match="out must have the dtype of the sum, float32"):
        segments_on_device.add_rows(on_device(np.ones((5, 40))), ids, rows)
    with pytest.raises(ValueError, match="shape"):
        segments_on_device.add_rows(on_device(np.ones((5, 41), np.float32)), ids, rows)


@pytest.mark.gpu
@pytest.mark.parametrize("shapes", [pytest.param(SHAPES[:10], marks=pytest.mark.sanitizer,
                                                 id="small"),
                                    pytest.param(SHAPES[8:], id="large")])  # fmt: skip
@pytest.mark.parametrize("kind", ["usual", "cancelling"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_on_the_card(dtype, kind, shapes):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    half = dtype == "bfloat16"

    def there(x):
        x = torch.from_numpy(x.view(np.int16) if half else x)
        return (x.view(torch.bfloat16) if half else x).cuda()

    def back(x):
        x = x.cpu()
        return x.view(torch.int16).numpy().view(numpy_dtype(dtype)) if half else x.numpy()

    for n, m, d in shapes:
        for of_ids in ("uniform", "skewed", "sorted"):
            ids = ids_for(rng, of_ids, n, m)
            table, rows = made(rng, (n, d), dtype, kind), made(rng, (m, d), dtype, kind)
            there_ids = torch.from_numpy(ids).cuda()
            check(table, ids, rows, there(table), back, there_ids, there(rows))
