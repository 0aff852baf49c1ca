"""Reductions of PyTorch in the mode `gpureduce.torch.reproducible`: ours, each rounded once."""

from __future__ import annotations

import numpy as np
import pytest

from cases import run_python
from gpureduce import exact

torch = pytest.importorskip("torch")
import gpureduce.torch as ours  # noqa: E402

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
norm = torch.linalg.vector_norm
# Along the last dimension: PyTorch's function, and that of gpureduce.exact with the same value.
ROWS = {
    "sum": (lambda x: x.sum(-1), exact.sum),
    "nansum": (lambda x: x.nansum(-1), exact.nansum),
    "mean": (lambda x: x.mean(-1), exact.mean),
    "var": (lambda x: x.var(-1), lambda a, axis: exact.var(a, axis, ddof=1)),
    "std": (lambda x: x.std(-1, correction=0), exact.std),
    "norm": (lambda x: norm(x, dim=-1), lambda a, axis: exact.norm(a, 2, axis)),
    "norm1": (lambda x: norm(x, 1, dim=-1), lambda a, axis: exact.norm(a, 1, axis)),
    "cumsum": (lambda x: x.cumsum(-1), exact.cumsum),
    "logsumexp": (lambda x: x.logsumexp(-1), None),
}  # fmt: skip
WHOLE = {
    "sum": torch.sum,
    "mean": torch.mean,
    "var": torch.var,
    "std": torch.std,
    "norm": norm,
    "total norm": lambda x: torch.nn.utils.get_total_norm([x, x[0]]),
    "dot": lambda x: torch.dot(x[0], x[1]),
    "wide": lambda x: x.sum((0, -1), dtype=torch.float64),
    "of integers": lambda x: (x > 0).long().mean(dtype=torch.float32),
}


def numbers(*shape, dtype=torch.float32, device="cpu"):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    scale = torch.arange(x.numel()).reshape(shape) * 7 % 16 - 8
    return (x * 2.0**scale).to(dtype).to(device)


def in_mode(function, *args):
    """The result in the mode, and the names of our operators."""
    with ours.reproducible(report=True) as report:
        found = function(*args)
    return found, list(report.ours)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ROWS)
def test_a_row_does_not_depend_on_its_batch(name, dtype, device):
    function, right = ROWS[name]
    x = numbers(40, 300, dtype=dtype, device=device)
    whole, names = in_mode(function, x)
    assert len(names) == 1
    order, columns = torch.randperm(40).to(device), torch.randperm(300).to(device)
    with ours.reproducible():
        assert torch.equal(function(x[3:7]), whole[3:7])
        assert torch.equal(function(x[20]), whole[20])
        assert torch.equal(function(x[order]), whole[order])
        assert torch.equal(function(torch.cat([x, x]))[:40], whole)
        assert torch.equal(function(x.T.contiguous().T), whole)
        if name != "cumsum":
            assert torch.equal(function(x[:, columns]), whole)
        if name in ("sum", "nansum", "norm", "norm1"):
            assert torch.equal(function(torch.nn.functional.pad(x, (0, 9))), whole)
    if right is not None and dtype != torch.bfloat16:
        np.testing.assert_array_equal(whole.cpu().numpy(), right(x.cpu().numpy(), axis=-1))
    # PyTorch's cumsum of bfloat16 on a card rounds each partial sum, so it is asked for float64.
    near = function(x.double())
    rounding = torch.finfo(dtype).eps * near.abs() + (1e-3 if name == "logsumexp" else 1e-10)
    assert ((whole - near).abs() <= rounding).all()


@pytest.mark.parametrize("name", WHOLE)
def test_values_of_whole_tensors(name, device):
    x = numbers(30, 50, device=device)
    found, names = in_mode(WHOLE[name], x)
    assert names
    want = WHOLE[name](x.double() if name != "of integers" else x)
    assert found.dtype == (want.dtype if name in ("wide", "of integers") else x.dtype)
    torch.testing.assert_close(found.double(), want.double(), rtol=2e-7, atol=0)


def test_shapes_and_gradients_are_torchs(device):
    x = numbers(3, 4, 5, dtype=torch.float64, device=device).requires_grad_()
    every = torch.sum, torch.nansum, torch.mean, torch.var, torch.std, torch.logsumexp, norm
    for function in every:
        for dim in (0, -1, (0, 2), [1, 0, 2]):
            for keepdim in (False, True):
                want = function(x, dim=dim, keepdim=keepdim)
                by_torch = torch.autograd.grad(want.square().sum(), x)[0]
                with ours.reproducible():
                    found = function(x, dim=dim, keepdim=keepdim)
                    by_us = torch.autograd.grad(found.square().sum(), x)[0]
                torch.testing.assert_close(found, want)
                torch.testing.assert_close(by_us, by_torch)
    with ours.reproducible():
        assert torch.autograd.gradcheck(lambda t: t.cumsum(1).std(0) * t.logsumexp(0), (x,))


def test_what_stays_torchs(device):
    x, whole = torch.ones(3, 4, device=device), torch.ones(3, 4, device=device).long()
    out, sparse = torch.empty(3, device=device), x.to_sparse()
    for call in (
        lambda: whole.sum(1),
        lambda: whole.cumsum(0),
        lambda: (x * 1j).mean(0),
        lambda: torch.sum(x, 1, out=out),
        lambda: norm(x, torch.inf),
        lambda: norm(x, 3),
        lambda: x.sum(dtype=torch.int32),
        lambda: x.to("meta").sum(),
        sparse.sum,
    ):
        assert not in_mode(call)[1]
    for call in (
        lambda: x.sum(2),
        lambda: x.mean((0, 0)),
        lambda: x.cumsum(5),
        lambda: torch.dot(x[0], x[0, :2]),
        lambda: norm(x, dtype=torch.float16),
        lambda: x.logsumexp((1, -1)),
    ):
        with pytest.raises((IndexError, RuntimeError)) as torchs:
            call()
        with pytest.raises((IndexError, RuntimeError)) as found, ours.reproducible():
            call()
        assert str(found.value) == str(torchs.value)


def test_narrow_floats_are_cast_first(device):
    x = torch.arange(9.0, device=device).to(torch.float8_e4m3fn)
    for call in (lambda: x.sum(dtype=torch.float32), lambda: x.cumsum(0, dtype=torch.float16)):
        found, names = in_mode(call)
        assert names and torch.equal(found, call())
    with ours.reproducible(), pytest.raises(NotImplementedError, match="Float8"):
        x.sum()


@pytest.mark.filterwarnings("error")
def test_few_elements_and_special_ones(device):
    special = [[torch.nan, 1.0], [torch.inf, 1.0], [torch.inf, -torch.inf], [-torch.inf] * 2]
    x = torch.tensor(special, device=device)
    for some in (x, x[:, :1], x[:, :0]):
        for function, _ in ROWS.values():
            try:
                want = function(some).cpu()
            except UserWarning:  # PyTorch warns about variances of one element
                want = torch.full((4,), torch.nan)
            with ours.reproducible():
                assert torch.equal(function(some).cpu().isnan(), want.isnan())


def test_vmap_and_transforms(device):
    x = numbers(6, 50, device=device)
    with ours.reproducible():
        for function, _ in ROWS.values():
            assert torch.equal(torch.func.vmap(function)(x), function(x))
            assert torch.equal(torch.func.vmap(function, in_dims=1)(x.T), function(x))
        once = torch.func.grad(lambda t: t.std() + t.logsumexp(1).sum())(x)
        y = x.clone().requires_grad_()
        (y.std() + y.logsumexp(1).sum()).backward()
    assert torch.equal(once, y.grad)


def test_outside_the_mode_are_torchs_bits():
    x = numbers(40, 3000)
    before = [function(x) for function, _ in ROWS.values()]
    with ours.reproducible():
        inside = [function(x) for function, _ in ROWS.values()]
    assert all(map(torch.equal, before, (function(x) for function, _ in ROWS.values())))
    assert not all(map(torch.equal, before, inside))
    with ours.reproducible("cuda"):
        assert all(map(torch.equal, before, (function(x) for function, _ in ROWS.values())))


def test_norms_of_gradients_are_clipped_by_ours(device):
    shapes = [(4, 3), (), (500, 3), (0, 2), (5000, 3), (5000, 3), (3000, 5), (70_000,), (7,)]
    parameters = [torch.nn.Parameter(numbers(*shape, device=device)) for shape in shapes]
    for one in parameters:
        one.grad = numbers(*one.shape, device=device) * 3
    parameters[3].grad = torch.empty(0, 2, device=device)
    parameters[4].grad = parameters[4].grad.T.contiguous().T
    for one in torch._foreach_norm([p.grad for p in parameters]):
        assert one.dim() == 0
    want = exact.norm(np.array([exact.norm(p.grad.cpu().numpy()) for p in parameters]))
    total, names = in_mode(torch.nn.utils.clip_grad_norm_, parameters, 1.0)
    assert total.item() == want
    assert "aten.linalg_vector_norm.default" in names and "aten._foreach_norm.Scalar" in names
    parameters[0].grad[0, 0] = torch.nan
    total, _ = in_mode(torch.nn.utils.get_total_norm, [p.grad for p in parameters])
    assert total.isnan()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_programs_have_the_bits_of_others(backend, device):
    functions = [one for one, _ in ROWS.values()] + list(WHOLE.values())

    def results(x):
        return [*(function(x) for function in functions), x[0, 0].sum(0)]

    x = numbers(6, 500, device=device).requires_grad_()
    torch._dynamo.reset()
    compiled = torch.compile(results, backend=backend, fullgraph=True)
    compiled(x)
    with ours.reproducible():
        found, want = compiled(x), results(x)
        assert all(map(torch.equal, found, want))
        for name, one, two in zip([*ROWS, *WHOLE, "one element"], found, want, strict=True):
            if two.requires_grad and name != "logsumexp":  # whose gradient has exponentials
                both = [torch.autograd.grad(t.sum(), x, retain_graph=True)[0] for t in (one, two)]
                assert torch.equal(*both), name


@pytest.mark.slow
def test_programs_that_are_compiled_before_and_after_the_mode():
    code = """
import torch, gpureduce.torch as ours
def f(x):
    return x.sum(1), torch.nn.utils.get_total_norm([x, x[0]])
x = torch.randn(6, 5000)
compiled = torch.compile(f, fullgraph=True)
compiled(x)  # PyTorch keeps what it decomposes from here on
with ours.reproducible():
    print(all(map(torch.equal, compiled(x), f(x))))
torch._dynamo.reset()
print(torch.allclose(compiled(x)[1], f(x)[1]))
"""
    assert run_python(code) == "True\nTrue\n"


def test_opcheck(device):
    x = numbers(4, 5, device=device).requires_grad_()
    for dim in ([1], None):
        torch.library.opcheck(torch.ops.gpureduce.logsumexp.default, (x, dim, False))
