"""`gpureduce.torch.reproducible`: the same bits in every run and order, in this thread alone."""

from __future__ import annotations

import contextlib
import threading

import numpy as np
import pytest

import gpureduce

torch = pytest.importorskip("torch")
import gpureduce.torch as ours  # noqa: E402
from gpureduce.bench import record  # noqa: E402
from gpureduce.cli.main import main  # noqa: E402
from gpureduce.training import rows as rows_of_tables  # noqa: E402
from gpureduce.training import speed  # noqa: E402
from gpureduce.training.models import MODELS, Size, train  # noqa: E402

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture
def counted(monkeypatch):
    """A list with an entry for each addition of ours."""
    calls, add = [], rows_of_tables.add
    monkeypatch.setattr(rows_of_tables, "add", lambda *args: (calls.append(1), add(*args))[1])
    return calls


def numbers(*shape, dtype=torch.float32, device="cpu"):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))
    scale = torch.arange(x.numel()).reshape(shape) % 9 - 4
    return (x * 2.0**scale).to(dtype).to(device)


def ids(count, most, device="cpu"):
    found = torch.rand(count, generator=torch.Generator().manual_seed(most)) ** 2 * most
    return found.long().to(device)


def cases(device, dtype):
    """Functions that add up the same rows, in the order that they are given."""
    functional = torch.nn.functional
    table, rows, places = numbers(40, 6, dtype=dtype), numbers(300, 6, dtype=dtype), ids(300, 40)
    table, rows, places = table.to(device), rows.to(device), places.to(device)
    own = (torch.arange(1800, device=device).reshape(300, 6) * 7) % 40

    def gradient(function, x):
        x = x.clone().requires_grad_()
        function(x).backward(rows)
        return x.grad

    yield lambda o: table.index_add(0, places[o], rows[o])
    yield lambda o: table.clone().index_add_(0, places[o], rows[o], alpha=2)
    yield lambda o: table.T.clone().index_add_(1, places[o], rows[o].T)
    yield lambda o: table.index_put((places[o],), rows[o], accumulate=True)
    yield lambda o: table.index_put((places[o], own[o, 0] % 6), rows[o, 0], accumulate=True)
    yield lambda o: table.scatter_add(0, places[o, None].expand(300, 6), rows[o])
    yield lambda o: table.scatter_add(0, own[o], rows[o])
    for reduce in ("sum", "mean"):
        for include in (True, False):
            yield lambda o, r=reduce, i=include: table.scatter_reduce(
                0, own[o], rows[o], r, include_self=i
            )
    yield lambda o: torch.bincount(places[o], rows[o, 0], 50)
    yield lambda o: gradient(lambda x: x[places[o]][o.argsort()], table)
    yield lambda o: gradient(lambda x: x.index_select(0, places[o])[o.argsort()], table)
    yield lambda o: gradient(lambda x: x.gather(0, own[o])[o.argsort()], table)
    yield lambda o: gradient(
        lambda x: functional.embedding(places[o], x, padding_idx=1)[o.argsort()], table
    )
    bags, pairs = torch.arange(0, 600, 2, device=device), torch.stack([places, places * 7 % 40], 1)
    for mode in ("sum", "mean") if dtype != torch.float16 or device != "cpu" else ():
        yield lambda o, m=mode: gradient(
            lambda x: functional.embedding_bag(pairs[o].flatten(), x, bags, mode=m)[o.argsort()],
            table,
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("device", DEVICES)
def test_the_order_does_not_show(device, dtype, counted):
    first, other = torch.arange(300, device=device), torch.randperm(300).to(device)
    for k, case in enumerate(cases(device, dtype)):
        before = len(counted)
        with ours.reproducible():
            one, two = case(first), case(other)
        assert len(counted) >= before + 2, k
        assert torch.equal(one, two), k
        half = dtype in (torch.bfloat16, torch.float16)
        close = {"rtol": 0.1, "atol": 4} if half else {"rtol": 1e-5, "atol": 1e-4}
        torch.testing.assert_close(one, case(first), **close)


@pytest.mark.parametrize("device", DEVICES)
def test_each_sum_is_rounded_once(device):
    table, rows, places = numbers(40, 3), numbers(500, 3), ids(500, 40)
    with ours.reproducible():
        found = table.to(device).index_add(0, places.to(device), rows.to(device)).cpu()
    both, every = torch.cat([table, rows]), torch.cat([torch.arange(40), places])
    want = gpureduce.segment_sum(both.numpy(), every.numpy(), num_segments=40).value
    assert found.numpy().tobytes() == want.tobytes()


@pytest.mark.parametrize("device", DEVICES)
def test_segments_are_reduced_by_ours(device, counted):
    x = numbers(60, 3).to(device).requires_grad_()
    lengths = torch.tensor([50, 0, 7, 3], device=device)
    offsets = torch.tensor([0, 50, 50, 57, 60], device=device)
    for reduce in ("sum", "mean"):
        for rows in (x, x[:, 0], x.reshape(60, 3, 1)):
            for how in ({"lengths": lengths}, {"offsets": offsets}):
                want = torch.segment_reduce(rows, reduce, **how)
                with ours.reproducible():
                    found = torch.segment_reduce(rows, reduce, **how)
                torch.testing.assert_close(found, want, equal_nan=True, rtol=1e-4, atol=1e-4)
                found.nansum().backward()
    assert len(counted) == 12
    calls = (lambda: torch.segment_reduce(x, "sum", lengths=lengths + 1),
             lambda: torch.segment_reduce(x, "max", lengths=lengths).size(5))  # fmt: skip
    for call in calls:
        with ours.reproducible(), pytest.raises((RuntimeError, IndexError)):
            call()
    assert len(counted) == 12


def test_what_stays_torchs(counted):
    table, places = torch.zeros(5, 2), torch.tensor([0, 0, 4])
    with ours.reproducible():
        table.index_put((places,), torch.ones(3, 2))
        table.long().index_add(0, places, torch.ones(3, 2).long())
        table.scatter_reduce(0, places[:, None].expand(3, 2), torch.ones(3, 2), "amax")
        torch.bincount(places)
        torch.zeros(2, device="meta").index_add(0, torch.zeros(1, device="meta").long(),
                                                torch.zeros(1, device="meta"))  # fmt: skip
    assert not counted


def test_views_and_empty_tensors():
    base = numbers(12, 10)
    with ours.reproducible():
        base[::2, 1:4].index_add_(0, torch.tensor([5, 5]), torch.ones(2, 3))
        base[:, 4:].T.index_put_((torch.tensor([[0], [1]]), torch.tensor([2, 3])),
                                 torch.ones(2, 2), accumulate=True)  # fmt: skip
        torch.zeros(3).index_add(0, torch.tensor(1), torch.ones(1))
        torch.zeros(()).scatter_add(0, torch.tensor(0), torch.ones(()))
        torch.zeros(0, 3).index_add(0, torch.zeros(0).long(), torch.zeros(0, 3))
        torch.zeros(4).index_put_((torch.zeros(4, dtype=torch.bool),), torch.ones(()), True)
    want = numbers(12, 10)
    want[10, 1:4] += 2
    want[2:4, 4:6] += 1
    torch.testing.assert_close(base, want)


def test_a_wrong_index():
    with ours.reproducible():
        for wrong in (5, -1):
            table = torch.zeros(5, 2)
            with pytest.raises(IndexError, match=f"index {wrong} is out of range for 5 rows"):
                table.index_add_(0, torch.tensor([0, wrong]), torch.ones(2, 2))
            assert not table.any()
        row, wrong, ones = torch.tensor([1]), torch.tensor([2]), torch.ones(1)
        for call in (  # which would be right in another row
            lambda: table.index_put((row, wrong), ones, accumulate=True),
            lambda: table.index_put((row, -wrong - 1), ones, accumulate=True),
            lambda: table.scatter_add(1, wrong[:, None], ones[:, None]),
            lambda: table.scatter_add(1, torch.tensor([[0], [-1]]), torch.ones(2, 1)),
        ):
            with pytest.raises(IndexError, match="index -1 is out of range"):
                call()


def test_wrong_arguments_are_refused_as_by_torch():
    x, ids, rows = torch.zeros(3, 2), torch.tensor([0, 1, 2]), torch.ones(3, 2)
    for call in (
        lambda: x.index_add(0, ids[:2], rows),
        lambda: x.index_add(0, ids, torch.ones(3, 5)),
        lambda: x.index_add(0, ids[None], rows),
        lambda: x.index_add(0, ids.float(), rows),
        lambda: x.index_add(2, ids, rows),
        lambda: x.scatter_add(0, ids[None], rows),
        lambda: x.scatter_add(3, ids[None, :2], rows),
        lambda: x.index_put((ids.float(),), rows, accumulate=True),
        lambda: x.index_put((ids, ids, ids), rows[0, 0], accumulate=True),
        lambda: x.index_put((ids[:2] > 0,), rows[0], accumulate=True),
        lambda: torch.bincount(ids.float(), rows[:, 0]),
    ):
        errors = []
        for mode in (contextlib.nullcontext(), ours.reproducible()):
            with mode, pytest.raises((RuntimeError, IndexError, NotImplementedError)) as found:
                call()
            errors.append((type(found.value), str(found.value)))
        assert errors[0] == errors[1]


def test_overlapping_tensors_are_refused_as_by_torch():
    x, ids = torch.ones(4, 3), torch.tensor([0, 1, 1, 2])
    with ours.reproducible():
        for call in (
            lambda: x.index_add_(0, ids, x),
            lambda: x.scatter_add_(0, ids[:, None].expand(4, 3), x),
            lambda: x.index_put_((ids,), x, accumulate=True),
            lambda: x[:1].expand(4, 3).index_add_(0, ids, torch.ones(4, 3)),
        ):
            with pytest.raises(RuntimeError, match="single memory location"):
                call()
    assert (x == 1).all()


def adds(counted):
    """Whether an addition in this thread is ours."""
    before = len(counted)
    torch.zeros(3).index_add_(0, torch.tensor([0, 0]), torch.ones(2))
    return len(counted) > before


def in_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_the_mode_is_of_a_thread_and_nests(counted):
    assert not adds(counted)
    with ours.reproducible():
        assert adds(counted)
        assert not in_thread(lambda: adds(counted))
        with ours.reproducible("cuda"):
            assert not adds(counted)
        with ours.reproducible(("cuda", "cpu")):
            assert adds(counted)
        assert adds(counted)
    assert not adds(counted)
    assert ours.reproducible()(lambda: adds(counted))()
    ours.enable()
    assert adds(counted)
    ours.disable()
    assert not adds(counted)
    with pytest.raises(RuntimeError, match="in no mode"):
        ours.disable()


def test_switches_are_put_back():
    def switches():
        return (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark,
                torch.utils.deterministic.fill_uninitialized_memory)  # fmt: skip

    @ours.reproducible()
    def fails():
        assert switches() == (True, False, False)
        with ours.reproducible():
            assert in_thread(switches) == (True, False, False)
        assert switches() == (True, False, False)
        raise ZeroDivisionError

    before = switches()
    with pytest.raises(ZeroDivisionError):
        fails()
    assert switches() == before


def test_errors():
    for device in ("gpu0", 5, ("cpu", "nothing")):
        with pytest.raises(ValueError, match="device must be a device of PyTorch"):
            ours.reproducible(device)


def test_a_report():
    table = numbers(5, 2).requires_grad_()
    with ours.reproducible(report=True) as report:
        (table[torch.tensor([0, 0, 4])] * 2).sum().backward()
    assert report.ours == {"aten.index_put.default": 1, "aten.sum.default": 1}
    assert report.torchs["aten.mul.Tensor"] == 2
    assert not report.neither
    assert "gpureduce, each sum rounded once" in str(report)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", MODELS)
def test_training_gives_the_same_bits(name, device):
    steps, size = 3, MODELS[name]
    if device == "cuda":
        case = next(one for one in speed.CASES if one.model == name)
        steps, size = 50, Size(case.n, case.columns, case.table)
    with ours.reproducible():
        losses, digest = train(name, device, steps, size)
        again = train(name, device, steps, size)
    assert (torch.equal(losses, again[0]), again[1]) == (True, digest)
    torch.testing.assert_close(losses, train(name, device, steps, size)[0], rtol=0.01, atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_programs_have_the_bits_of_others(backend, counted):
    table, x = numbers(50, 7).requires_grad_(), numbers(30, 7).requires_grad_()
    places, others = ids(200, 50), ids(60, 30)

    def loss(table, x):
        rows = torch.nn.functional.embedding(places, table)[:60]
        y = torch.zeros(30, 7).index_add_(0, others, rows * x[others])
        z = torch.zeros(30, 7).scatter_add(0, others[:, None].expand(60, 7), rows)
        return (y * z).sum()

    def gradients(function):
        table.grad = x.grad = None
        function(table, x).backward()
        return table.grad, x.grad

    torch._dynamo.reset()
    compiled = torch.compile(loss, backend=backend, fullgraph=True)
    gradients(compiled)
    assert not counted
    with ours.reproducible():
        want, calls = gradients(loss), len(counted)
        found = gradients(compiled)
        assert len(counted) == 2 * calls
    for one, two in zip(want, found, strict=True):
        assert torch.equal(one, two)
    gradients(compiled)
    assert len(counted) == 2 * calls


@pytest.mark.parametrize("device", DEVICES)
def test_logsumexp(device):
    x = (numbers(30, 200) * 5).to(device)
    for dim in (0, 1, (0, 1), None, -1):
        for keepdim in (False, True):
            found = ours.logsumexp(x, dim, keepdim)
            want = torch.logsumexp(x, (0, 1) if dim is None else dim, keepdim)
            torch.testing.assert_close(found, want)
    order = torch.randperm(200).to(device)
    rows = ours.logsumexp(x, 1)
    assert torch.equal(ours.logsumexp(x[:, order], 1), rows)
    assert torch.equal(ours.logsumexp(x[3:5], 1), rows[3:5])
    one, two = x.clone().requires_grad_(), x.clone().requires_grad_()
    ours.logsumexp(one, 1).sum().backward()
    torch.logsumexp(two, 1).sum().backward()
    torch.testing.assert_close(one.grad, two.grad)
    for special in ([-torch.inf, -torch.inf], [torch.inf, 1.0], [torch.nan, 1.0], []):
        found = ours.logsumexp(torch.tensor(special, device=device), 0)
        assert np.array_equal(found.cpu(), torch.logsumexp(torch.tensor(special), 0), True)
    half = ours.logsumexp(x.bfloat16(), 1)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half, torch.logsumexp(x.bfloat16(), 1), rtol=1e-2, atol=0.1)
    with pytest.raises(TypeError, match=r"pass x.double\(\)"):
        ours.logsumexp(torch.ones(3, dtype=torch.long))


def test_a_record_of_its_speed(tmp_path, capsys):
    path = tmp_path / "torch.json"
    options = ["--torch", "--device", "cpu", "--sizes", "300", "--repeats", "1"]
    assert main(["bench", *options, "--output", str(path)]) == 0
    assert "Microseconds of additions by index and of training steps" in capsys.readouterr().out
    rows = record.load(path, "torch")["rows"]
    assert {row["strategy"] for row in rows} == {"torch", "torch deterministic", "exact"}
    cases = {one.within(300) for one in speed.CASES if not one.model}
    assert len(rows) == 3 * len(cases)


@pytest.mark.parametrize("device", DEVICES)
def test_steps_of_training_are_timed(device):
    place = speed.place_of(device, "--torch", ("torch",), "cpu")
    cases = [one for one in speed.CASES if one.model]
    assert [one.model for one in cases] == 2 * list(MODELS)
    for case in cases if device == "cuda" else cases[: len(MODELS)]:
        contenders = [*speed._contenders(place, case)]  # graphs must keep what they read
        losses = [one.value().item() for one in contenders]
        np.testing.assert_allclose(losses, losses[0], rtol=0.01)
