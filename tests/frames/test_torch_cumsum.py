"""Running sums of PyTorch tensors: values beside PyTorch's, bits of gpureduce.exact, gradients."""

from __future__ import annotations

import numpy as np
import pytest

from gpureduce import exact

torch = pytest.importorskip("torch")
import gpureduce.torch as gt  # noqa: E402

DTYPES = ["bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64",
          "complex64", "complex128"]  # fmt: skip
CASTS = [("float64", "float16"), ("float32", "float64"), ("float32", "complex64"),
         ("float32", "int32"), ("int64", "float32"), ("bool", "int8")]  # fmt: skip


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_shapes_and_values(device, name):
    dtype = getattr(torch, name)
    x = (torch.randn(5, 7, 3, device=device) * 9).to(dtype)
    for of in (x, x.transpose(0, 2), x[:, 1:2].expand(5, 7, 3), x[:0]):
        for dim in (0, 1, -1):
            found, like = gt.cumsum(of, dim), torch.cumsum(of, dim)
            assert found.device == of.device
            torch.testing.assert_close(found, like, atol=0.5, rtol=1e-2)
            if name != "bfloat16":
                same = exact.cumsum(of.cpu().numpy(), dim, str(like.dtype).removeprefix("torch."))
                np.testing.assert_array_equal(found.cpu().numpy(), same)
    assert gt.cumsum(torch.tensor(3.0, device=device), 0).item() == 3


@pytest.mark.parametrize(("name", "wanted"), CASTS)
def test_casts(device, name, wanted):
    x = (torch.randn(50, 4, device=device) * 9).to(getattr(torch, name))
    dtype = getattr(torch, wanted)
    torch.testing.assert_close(gt.cumsum(x, 0, dtype=dtype), torch.cumsum(x, 0, dtype=dtype),
                               atol=0.1, rtol=1e-2)  # fmt: skip
    x = torch.tensor([2049.0, 1.0], device=device)
    assert gt.cumsum(x, 0, dtype=torch.float16).tolist() == [2048, 2050]


def test_gradients_are_the_sums_from_each_entry_on(device):
    for dtype in (torch.float64, torch.complex128):
        x = torch.randn(4, 3, dtype=dtype, device=device, requires_grad=True)
        for dim in (0, -1):
            assert torch.autograd.gradcheck(lambda t, dim=dim: gt.cumsum(t, dim), (x,))
            assert torch.autograd.gradgradcheck(lambda t, dim=dim: gt.cumsum(t * t, dim), (x,))
    x = torch.randn(3, dtype=torch.float64, device=device, requires_grad=True)
    wide = torch.complex128
    assert torch.autograd.gradcheck(lambda t: gt.cumsum(t, 0, dtype=wide), (x,))
    x = torch.zeros(1000, 3, device=device, requires_grad=True)
    g = torch.randn(1000, 3, device=device) * 10.0 ** torch.randint(-9, 9, (1000, 3), device=device)
    gt.cumsum(x, 0, dtype=torch.float64).backward(g.double())
    right = exact.cumsum(g.cpu().numpy(), 0, reverse=True)
    np.testing.assert_array_equal(x.grad.cpu().numpy(), right)


def test_compiled_and_opcheck(device):
    x = torch.randn(6, 5, device=device, requires_grad=True)
    compiled = torch.compile(lambda t: gt.cumsum(t * t, 1), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), gt.cumsum(x * x, 1))
    compiled(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x * torch.arange(5.0, 0, -1, device=device))
    torch.library.opcheck(torch.ops.gpureduce.cumsum.default, (x, 1, torch.float32, False))


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: gt.cumsum(torch.ones(2, 2), 2), IndexError, "from -2 to 1"),
    (lambda: gt.cumsum(torch.ones(2) * 1j, 0, dtype=torch.float32), TypeError, "imaginary"),
])  # fmt: skip
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()
