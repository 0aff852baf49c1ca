"""gpureduce.dask: the same bits for any chunks, on a cluster of four worker processes."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

import gpureduce
from cases import array_of, same_bits
from gpureduce.core import chunk_sums, devices, gpu_arrays
from producers import OnDevice

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")
gd = pytest.importorskip("gpureduce.dask")

MIB = 2**20
LIMIT = 320 * MIB  # of a worker, which takes half of that to start
WORKERS = 2


@pytest.fixture(autouse=True)
def in_this_process():
    """The scheduler of tests that do not ask for the cluster."""
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workers")
    quiet = {
        "distributed.worker.memory.recent-to-old-time": "1s",
        "logging.distributed": "critical",
    }
    with (
        dask.config.set(quiet),
        distributed.LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, processes=True, memory_limit=LIMIT,
            dashboard_address=None, local_directory=str(folder),
        ) as found,
        distributed.Client(found) as client,
    ):  # fmt: skip
        yield client


def on(client, x):
    return client.compute(x).result(timeout=60)


ARRAY = array_of("float64", 60 * 41 * 7).reshape(60, 41, 7)
CHUNKS = [(60, 41, 7), (7, 5, 7), (1, 41, 3), ((0, 50, 10), (41, 0), (3, 4)), (60, 1, 1)]


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), [0, 1], (), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
def test_what_dask_knows_of_a_result(axis, keepdims):
    """`_meta` had the dimensions of the input, so da.stack and da.pad failed."""
    x = da.from_array(ARRAY, chunks=(20, 41, 7))
    for ours, theirs in ((gd.sum, da.sum), (gd.mean, da.mean)):
        for strategy in ({}, {"strategy": "cpu"}) if ours is gd.sum else ({},):
            found = ours(x, axis=axis, keepdims=keepdims, **strategy)
            wanted = theirs(x, axis=axis, keepdims=keepdims)
            assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
            assert (found._meta.shape, found._meta.dtype) == (wanted._meta.shape, wanted.dtype)
            both = da.stack([found, wanted]).compute()
            np.testing.assert_allclose(both[0], both[1], rtol=1e-12)
            padded = da.pad(found, 1).compute()
            np.testing.assert_array_equal(padded, np.pad(found.compute(), 1))
            da.utils.assert_eq(found, found.compute())


@pytest.mark.parametrize(
    ("chunks", "axis"),
    [(CHUNKS[(i + more) % 5], axis) for more in (0, 2)
     for i, axis in enumerate([None, 0, 1, -1, (0, 2), (), (0, 1, 2)])],
)  # fmt: skip
def test_chunks_and_trees_do_not_matter(chunks, axis):
    x = da.from_array(ARRAY, chunks=chunks)
    for split_every, keepdims in ((None, True), (2, False), ({0: 2, 1: 3, 2: 4}, False)):
        right = gpureduce.sum(ARRAY, axis=axis, keepdims=keepdims).value
        lazy = gd.sum(x, axis=axis, keepdims=keepdims, split_every=split_every)
        assert lazy.dtype == right.dtype and lazy.shape == right.shape
        found = lazy.compute()
        assert found.dtype == right.dtype and found.shape == right.shape
        assert type(found) is type(right)  # a scalar if nothing is left of the axes
        assert np.asarray(found).tobytes() == np.asarray(right).tobytes()


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "complex64", "int8", "int64", "uint64", "bool"]
)
def test_dtypes(dtype):
    array = array_of(dtype, 3000).reshape(50, 60)
    x = da.from_array(array, chunks=(7, 23))
    for axis in (None, 0, 1):
        right = gpureduce.sum(array, axis=axis).value
        found = gd.sum(x, axis=axis).compute()
        assert found.dtype == right.dtype and np.array_equal(found, right)
    wide = "complex128" if dtype == "complex64" else "float64"
    right = gpureduce.sum(array, dtype=wide).value
    assert same_bits(gd.sum(x, dtype=wide).compute()[()], right)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "complex64", "float16"])
def test_means(dtype):
    array = (np.random.default_rng(1).standard_normal((30, 40)) * 1e3).astype(dtype)
    bits = set()
    for chunks in ((30, 40), (7, 9), (1, 40)):
        x = da.from_array(array, chunks=chunks)
        for axis in (None, 0, 1):
            found = gd.mean(x, axis=axis).compute()
            assert found.dtype == np.mean(array).dtype
            np.testing.assert_array_equal(found, gpureduce.exact.mean(array, axis=axis))
        bits.add(gd.mean(x).compute().tobytes())
    assert len(bits) == 1
    assert np.isnan(gd.mean(da.zeros(0)).compute())
    large = da.full(4, 60000, dtype="float16", chunks=2)
    assert gd.mean(large).compute() == 60000, "the sum is beyond float16"


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [("float32", "complex128"), ("float64", "complex64"), ("int64", "complex128"),
     ("uint64", "complex64")],
)  # fmt: skip
def test_complex_sums_of_real_numbers_are_rounded_once(dtype, wanted):
    """Elements that complex numbers cannot hold count in full."""
    large = np.array([2**53 + 1, 2**53 + 1, 1, 2**24 + 1, 7]).astype(dtype)
    for array in (np.tile(large, 7), array_of(dtype, 3000)):
        right = gpureduce.sum(array, dtype=wanted).value
        x = da.from_array(array, chunks=-(-array.size // 5))
        assert same_bits(gd.sum(x, dtype=wanted).compute()[()], right)
        if wanted == "complex128":
            mean = gd.mean(x, dtype=wanted).compute()[()]
            assert same_bits(mean, gpureduce.exact.mean(array, dtype=wanted))
        square = array[: array.size // 5 * 5].reshape(5, -1)
        found = gd.sum(da.from_array(square, chunks=(2, -1)), axis=0, dtype=wanted).compute()
        right = gpureduce.sum(square, axis=0, dtype=wanted).value
        assert found.dtype == right.dtype and found.tobytes() == right.tobytes()


def test_odd_arrays():
    assert gd.sum(da.ones(())).compute() == 1
    assert gd.sum(da.zeros((0, 3))).compute() == 0
    assert np.array_equal(gd.sum(da.zeros((0, 3)), axis=0).compute(), np.zeros(3))
    x = da.from_array(np.arange(10.0), chunks=3)
    unknown = x[x > 3]
    assert np.isnan(unknown.shape[0])
    assert gd.sum(unknown).compute() == 39 and gd.mean(unknown).compute() == 6.5
    assert gd.sum([1.0, 2.0]).compute() == 3
    special = da.from_array(np.array([np.inf, 1.0, -np.inf, 2.0]), chunks=1)
    assert np.isnan(gd.sum(special).compute()) and gd.sum(special[:2]).compute() == np.inf


@pytest.mark.parametrize("strategy", ["cpu", "numpy"])
def test_other_strategies(strategy):
    x = da.from_array(ARRAY, chunks=(20, 20, 7))
    for axis in (None, 1):
        found = gd.sum(x, axis=axis, strategy=strategy).compute()
        np.testing.assert_allclose(found, ARRAY.sum(axis=axis), rtol=1e-10)
    halves = da.full(5000, 1, dtype="float16", chunks=1000)
    assert gd.sum(halves, strategy=strategy).compute() == np.float16(5000)


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda x: gd.sum(x, strategy="nope"), ValueError, "strategy must be one of exact, cpu"),
        (lambda x: gd.sum(x, axis=3), np.exceptions.AxisError, "3"),
        (lambda x: gd.sum(x, dtype=int), TypeError, "would lose part of float64"),
        (lambda x: gd.sum(x.astype("U")), TypeError, "cannot be summed"),
        (lambda x: gd.mean(x, dtype=int), TypeError, "must be a float or complex dtype"),
    ],
)
def test_errors_come_before_anything_is_computed(call, kind, text):
    with pytest.raises(kind, match=text):
        call(da.ones(10, chunks=3))


def test_on_the_cluster(cluster):
    x = da.from_array(ARRAY, chunks=CHUNKS[3])
    assert same_bits(on(cluster, gd.sum(x))[()], gpureduce.sum(ARRAY).value)
    assert np.array_equal(on(cluster, gd.sum(x, axis=1)), gpureduce.sum(ARRAY, axis=1).value)


def _slow(block):
    import time

    time.sleep(0.05)
    return block


def test_a_worker_is_killed_and_started_again(cluster):
    x = da.from_array(ARRAY.reshape(-1), chunks=300).map_blocks(_slow)
    future = cluster.compute(gd.sum(x, split_every=2))
    pids = list(cluster.run(os.getpid).values())
    os.kill(pids[0], signal.SIGKILL)
    assert same_bits(future.result(timeout=60)[()], gpureduce.sum(ARRAY).value)
    cluster.wait_for_workers(WORKERS, timeout=30)
    assert len(set(cluster.run(os.getpid).values()) - set(pids)) == 1


def test_zarr_four_times_as_large_as_all_memory(cluster, tmp_path):
    zarr = pytest.importorskip("zarr")
    n, chunk = 4 * WORKERS * LIMIT // 8, 16 * MIB // 8
    stored = zarr.create_array(
        str(tmp_path / "x.zarr"), shape=(n,), chunks=(chunk,), dtype="f8", fill_value=0.5
    )
    numbers = array_of("float64", 1000)
    for i in range(3):
        stored[i * 7 * chunk : i * 7 * chunk + 1000] = numbers
    total = gpureduce.Accumulator().add(numbers).add(numbers).add(numbers)
    total.add(np.full(1, (n - 3000) / 2))
    found = on(cluster, gd.sum(da.from_zarr(str(tmp_path / "x.zarr"))))
    assert same_bits(found[()], total.value())


@pytest.mark.gpu
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2)])
def test_chunks_of_cupy(axis):
    """They have the bits of NumPy's chunks."""
    cupy = pytest.importorskip("cupy")
    x = da.from_array(ARRAY, chunks=(7, 5, 7)).map_blocks(cupy.asarray)
    found = gd.sum(x, axis=axis).compute()
    assert isinstance(found, np.ndarray | np.generic)
    assert np.asarray(found).tobytes() == gpureduce.sum(ARRAY, axis=axis).value.tobytes()
    right = gd.mean(da.from_array(ARRAY, chunks=9), axis=axis).compute()
    np.testing.assert_array_equal(gd.mean(x, axis=axis).compute(), right)


def _take_card(dask_worker):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(dask_worker.name)


def _card(dask_worker):
    import cupy

    return cupy.cuda.Device().pci_bus_id


@pytest.mark.gpu
@pytest.mark.several_gpus
def test_a_worker_per_card():
    """Chunks lie on the card of their worker. The sum has the bits of the whole array's."""
    cupy = pytest.importorskip("cupy")
    cards = sum(device.backend == "cuda" for device in gpureduce.devices())
    array = array_of("float64", 2_000_003)
    with (
        distributed.LocalCluster(
            n_workers=cards, threads_per_worker=1, memory_limit=0, dashboard_address=None
        ) as found,
        distributed.Client(found) as client,
    ):
        client.run(_take_card)
        assert len(set(client.run(_card).values())) == cards
        for chunk in (100_000, 777_777):
            x = da.from_array(array, chunks=chunk).map_blocks(cupy.asarray)
            assert same_bits(on(client, gd.sum(x))[()], gpureduce.sum(array).value)


class OnEmulator:
    """A chunk on an emulated device, with as much of CuPy as chunks need."""

    def __init__(self, array):
        self.array, self.shape, self.dtype, self.ndim = array, array.shape, array.dtype, array.ndim
        self.shown = OnDevice(array)

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **words):
        return self.shown.__dlpack__(**words)

    def get(self):
        return self.array


@pytest.mark.parametrize("axis", [(0, 1, 2), (0,), (0, 2)])
def test_chunks_on_an_emulated_device(axis, monkeypatch):
    """They become the digits of the same chunks in host memory."""
    monkeypatch.setattr(gpu_arrays, "_module", devices.emulator)
    some = ARRAY[:12, :20]
    found = chunk_sums.of_chunk(OnEmulator(some), axis)
    assert np.array_equal(found, chunk_sums.digits_of(some, axis))
