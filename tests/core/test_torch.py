"""The operator for PyTorch. Tensors on a card are summed where a card is."""

from __future__ import annotations

import pytest

import gpureduce
from cases import run_python

torch = pytest.importorskip("torch")
import gpureduce.torch  # noqa: E402

add = gpureduce.torch.sum


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [None, 0, -1, (0, 2), [0, 1, 2], ()])
def test_shapes_and_values(device, dim, keepdim):
    x = torch.randn(5, 7, 3, device=device, dtype=torch.float64)
    want = torch.sum(x, dim=dim, keepdim=keepdim) if dim is not None else torch.sum(
        x, dim=(0, 1, 2), keepdim=keepdim
    )  # fmt: skip
    found = add(x, dim, keepdim)
    assert found.shape == want.shape and found.device == x.device
    torch.testing.assert_close(found, want)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16",
                                   "float32", "float64", "complex64"])  # fmt: skip
def test_dtypes(device, dtype):
    kind = getattr(torch, dtype)
    x = (torch.randn(60, 40, device=device) * 9).to(kind)
    want = x.sum(0)
    found = add(x, 0)
    assert found.dtype == want.dtype
    torch.testing.assert_close(found, want, rtol=2e-2, atol=2e-1)
    assert add(x, 0, dtype=torch.float64 if not kind.is_complex else torch.complex128).shape == (
        40,
    )


def test_sums_are_those_of_numpy_arrays(device):
    x = torch.randn(300, 200, device=device)
    for dim in (0, 1):
        want = gpureduce.sum(x.cpu().numpy(), axis=dim).value
        assert add(x, dim).cpu().numpy().tobytes() == want.tobytes()
        assert add(x.t(), 1 - dim).cpu().numpy().tobytes() == want.tobytes()


@pytest.mark.parametrize(
    ("dim", "keepdim", "dtype", "strategy"),
    [(None, False, None, "auto"), ([1], True, None, "exact"), ([0, 2], False, "float64", "fast")],
)
def test_opcheck(device, dim, keepdim, dtype, strategy):
    if device == "cpu" and strategy == "fast":
        strategy = "cpu"
    x = torch.randn(4, 5, 3, device=device, requires_grad=True)
    kind = None if dtype is None else getattr(torch, dtype)
    torch.library.opcheck(torch.ops.gpureduce.sum.default, (x, dim, keepdim, kind, strategy))
    turned = torch.randn(3, 4, 5, device=device).permute(2, 0, 1)
    torch.library.opcheck(torch.ops.gpureduce.sum.default, (turned, dim, keepdim, kind, strategy))


def test_gradients(device):
    x = torch.randn(3, 4, dtype=torch.float64, device=device, requires_grad=True)
    for how in ({}, {"dim": 0}, {"dim": 1, "keepdim": True}, {"dtype": torch.float32}):
        add(x, **how).sum().backward()
        assert x.grad is not None and bool((x.grad == 1).all()) and x.grad.dtype == x.dtype
        x.grad = None
    assert torch.autograd.gradcheck(lambda t: add(t * t, 1), (x,))
    assert torch.autograd.gradgradcheck(lambda t: add(t**3, 0, keepdim=True), (x,))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_and_eager_give_the_same_bits(device, backend):
    def f(t):
        return add(t * 3, 1).exp()

    x = torch.randn(50, 70, device=device)
    assert torch.equal(torch.compile(f, fullgraph=True, backend=backend)(x), f(x))


def test_compiled_gradients_and_sizes(device):
    """One compilation for all sizes; gradients of compiled functions are those of eager ones."""
    compiled = torch.compile(lambda t: add(t * t, -1).exp(), fullgraph=True, backend="aot_eager",
                             dynamic=True)  # fmt: skip
    for rows, columns in ((50, 70), (3, 1000), (1, 5)):
        x = torch.randn(rows, columns, device=device, dtype=torch.float64) / columns
        one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        found, want = compiled(one), add(other * other, -1).exp()
        assert torch.equal(found, want)
        found.sum().backward()
        want.sum().backward()
        assert torch.equal(one.grad, other.grad)


def test_vmap(device):
    x = torch.randn(5, 7, 3, device=device)
    assert torch.equal(torch.func.vmap(lambda t: add(t, 0), in_dims=1)(x), add(x, 0))
    assert torch.equal(torch.func.vmap(add)(x), add(x, (1, 2)))
    assert torch.equal(torch.func.vmap(lambda t: add(t, -1, keepdim=True), in_dims=2)(x),
                       add(x, 1, keepdim=True).permute(2, 0, 1))  # fmt: skip
    twice = torch.func.vmap(torch.func.vmap(lambda t: add(t, 0)), in_dims=1, out_dims=1)
    assert torch.equal(twice(x), add(x, 2))
    x.requires_grad_()
    torch.func.vmap(lambda t: add(t * t, 0), in_dims=1)(x).sum().backward()
    assert torch.equal(x.grad, 2 * x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_row_does_not_depend_on_its_batch(device, dtype):
    x = (torch.randn(500, 37, device=device, dtype=torch.float64) * 1000).to(getattr(torch, dtype))
    alone = torch.stack([add(row) for row in x])
    order = torch.randperm(len(x), device=device)
    for count in (1, 2, 33, 500):
        assert torch.equal(add(x[:count], 1), alone[:count])
        assert torch.equal(add(x[-count:].t().contiguous(), 0), alone[-count:])
    assert torch.equal(add(x[order], 1), alone[order])
    assert torch.equal(add(x[:, torch.randperm(37, device=device)], 1), alone)
    assert torch.equal(add(x[::3].flip(1), 1), alone[::3])


def test_errors(device):
    x = torch.randn(2, 3, 4, device=device)
    with pytest.raises(IndexError, match="dim must be from -3 to 2, not 5"):
        add(x, 5)
    with pytest.raises(ValueError, match="names a dimension twice"):
        add(x, (0, -3))
    with pytest.raises(ValueError, match="there is no strategy 'nope'"):
        add(x, 0, strategy="nope")
    assert add(x, 0).shape == (3, 4)


def test_gpureduce_alone_does_not_import_torch():
    code = "import sys, gpureduce; gpureduce.sum([1.0]); print('torch' in sys.modules)"
    assert run_python(code) == "False\n"
