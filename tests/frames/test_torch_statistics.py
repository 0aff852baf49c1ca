"""Statistics of PyTorch tensors: values, gradients, compilation and vmap, beside PyTorch's own."""

from __future__ import annotations

import numpy as np
import pytest

from gpureduce import exact

torch = pytest.importorskip("torch")
import gpureduce.torch as gt  # noqa: E402

PAIRS = {  # ours, PyTorch's, and exact's with what differs from ours
    "mean": (gt.mean, torch.mean, exact.mean, {}),
    "var": (gt.var, torch.var, exact.var, {"ddof": 1}),
    "std": (gt.std, torch.std, exact.std, {"ddof": 1}),
    "norm": (gt.norm, torch.linalg.vector_norm, exact.norm, {}),
    "norm1": (lambda x, **how: gt.norm(x, 1, **how),
              lambda x, **how: torch.linalg.vector_norm(x, 1, **how), exact.norm, {"ord": 1}),
}  # fmt: skip


@pytest.fixture(params=PAIRS)
def pair(request):
    return PAIRS[request.param]


def test_values_shapes_and_bits(pair, device):
    ours, theirs, right, how = pair
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        x = torch.randn(5, 7, 3, device=device).to(dtype)
        for dim in (None, 0, -1, (0, 2), [0, 1, 2]):
            for keepdim in (False, True):
                want = theirs(x, dim=dim, keepdim=keepdim)
                found = ours(x, dim=dim, keepdim=keepdim)
                assert (found.shape, found.dtype) == (want.shape, want.dtype)
                assert found.device == x.device
                torch.testing.assert_close(found, want)
            if dtype != torch.bfloat16:
                axis = tuple(dim) if isinstance(dim, list) else dim
                bits = right(x.cpu().numpy(), axis=axis, **how)
                np.testing.assert_array_equal(ours(x, dim=dim).cpu().numpy(), bits)


def test_gradients(pair, device):
    ours, theirs, *_ = pair
    x = torch.randn(4, 3, dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: ours(t, dim=0), (x,))
    assert torch.autograd.gradgradcheck(lambda t: ours(t * t, dim=1, keepdim=True), (x,))
    for of in (x, x.detach() * 0 + 1.5, x.detach() * 0, x.detach()[:1]):
        one, other = of.detach().clone().requires_grad_(), of.detach().clone().requires_grad_()
        ours(one, dim=1).sum().backward()
        theirs(other, dim=1).sum().backward()
        torch.testing.assert_close(one.grad, other.grad, equal_nan=True)


def test_compiled_vmap_and_opcheck(pair, device):
    ours, *_ = pair
    x = torch.randn(6, 5, 4, device=device)
    f = torch.compile(lambda t: ours(t * 3, dim=1).exp(), fullgraph=True, backend="aot_eager")
    one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    assert torch.equal(f(one), ours(other * 3, dim=1).exp())
    f(one).sum().backward()
    ours(other * 3, dim=1).exp().sum().backward()
    assert torch.equal(one.grad, other.grad)
    assert torch.equal(torch.func.vmap(lambda t: ours(t, dim=0), in_dims=1)(x), ours(x, dim=0))
    assert torch.equal(torch.func.vmap(ours)(x), ours(x, dim=(1, 2)))
    y = x.clone().requires_grad_()
    for args in (("mean", [0], True, None, 0.0), ("std", None, False, None, 1.0)):
        torch.library.opcheck(torch.ops.gpureduce.statistic.default, (y, *args))
    torch.library.opcheck(torch.ops.gpureduce.vecdot.default, (y, y.detach().clone(), 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128])
def test_products(dtype):
    x, y = torch.randn(3, 4, 5, dtype=dtype), torch.randn(4, 5, dtype=dtype)
    for dim in (-1, 0, 1):
        want = torch.linalg.vecdot(x, y, dim=dim)
        torch.testing.assert_close(gt.vecdot(x, y, dim=dim), want)
    torch.testing.assert_close(gt.dot(x[0, 0], y[0]), torch.dot(x[0, 0], y[0]))
    if dtype.is_complex:  # PyTorch conjugates and negates elements when it reads them
        late = x.conj()
        torch.testing.assert_close(gt.vecdot(late, y), torch.linalg.vecdot(late, y))
        assert torch.equal(gt.mean(late.imag, 0), -gt.mean(x.imag, 0))
        assert torch.equal(gt.sum(late, 0), gt.sum(x, 0).conj())
    found = torch.func.vmap(gt.vecdot, in_dims=(0, None))(x, y)
    assert torch.equal(found, gt.vecdot(x, y))
    if dtype != torch.float32:
        x, y = x[0, :, :2].clone().requires_grad_(), y[:1, :2].clone().requires_grad_()
        assert torch.autograd.gradcheck(gt.vecdot, (x, y))
        assert torch.autograd.gradgradcheck(lambda a, b: gt.vecdot(a, b), (x, y))
        one = x.detach().clone().requires_grad_()
        (gt.dot(one[0], one[1]) * (1 + 0j if dtype.is_complex else 1)).abs().backward()


@pytest.mark.filterwarnings("ignore:Mean of empty")
def test_means_of_segments(device):
    x = torch.randn(30, 2, dtype=torch.float64, device=device, requires_grad=True)
    ids = torch.randint(0, 4, (30,), device=device)
    right = exact.segment_mean(x.detach().cpu().numpy(), ids.cpu().numpy(), num_segments=6)
    found = gt.segment_mean(x, ids, num_segments=6)
    np.testing.assert_array_equal(found.detach().cpu().numpy(), right)
    assert torch.autograd.gradcheck(lambda t: gt.segment_mean(t, ids, num_segments=4), (x,))
    offsets = torch.tensor([0, 5, 5, 30], device=device)
    assert torch.equal(gt.segment_mean(x, offsets=offsets)[2], gt.mean(x[5:], 0))
    (gt.segment_mean(x, offsets=offsets)[0] * 3).sum().backward()
    assert torch.equal(x.grad[:5], torch.full_like(x[:5], 3 / 5))
    every = torch.func.vmap(lambda v, i: gt.segment_mean(v, i, num_segments=4), in_dims=(1, None))
    assert torch.equal(every(x.detach(), ids), gt.segment_mean(x, ids, num_segments=4).t())
    f = torch.compile(lambda t: gt.segment_mean(t, ids, num_segments=4), fullgraph=True,
                      backend="aot_eager")  # fmt: skip
    assert torch.equal(f(x), gt.segment_mean(x, ids, num_segments=4))


@pytest.mark.parametrize(("call", "kind", "text"), [
    (lambda x: gt.mean(x.int()), TypeError, "exact means take floats"),
    (lambda x: gt.norm(x.int()), TypeError, "exact norms take floats"),
    (lambda x: gt.norm(x, 3), ValueError, "ord must be 1 or 2"),
    (lambda x: gt.dot(x, x), ValueError, "two one-dimensional tensors"),
    (lambda x: gt.vecdot(x, x.double()), TypeError, "both tensors must have one dtype"),
    (lambda x: gt.vecdot(x[0, 0], x[0, 0]), ValueError, "at least 1 dimension"),
    (lambda x: gt.var(x, correction="1"), TypeError, "correction must be a real number"),
    (lambda x: gt.std(x, 5), IndexError, "dim must be from -2 to 1, not 5"),
])  # fmt: skip
def test_errors(call, kind, text):
    with pytest.raises(kind, match=text):
        call(torch.ones(2, 3))
    assert gt.mean(torch.ones(2, dtype=torch.int32), dtype=torch.float64) == 1
