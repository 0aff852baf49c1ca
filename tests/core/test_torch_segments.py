"""The operators of sums by segment for PyTorch."""

from __future__ import annotations

import pytest

import gpureduce

torch = pytest.importorskip("torch")
import gpureduce.torch  # noqa: E402

segment_sum, index_add = gpureduce.torch.segment_sum, gpureduce.torch.index_add


def case(device, *shape, count=4, dtype=torch.float64):
    torch.manual_seed(len(shape))
    values = (torch.randn(*shape, device=device) * 9).to(dtype)
    return values, torch.randint(0, count, shape[:1], device=device)


@pytest.mark.parametrize("shape", [(9,), (9, 3), (9, 2, 5), (0, 3), (0, 2, 5), (9, 2, 0)])
def test_shapes_and_values(device, shape):
    values, ids = case(device, *shape)
    want = torch.zeros(4, *shape[1:], device=device, dtype=values.dtype).index_add_(0, ids, values)
    found = segment_sum(values, ids, num_segments=4)
    assert found.device == values.device
    torch.testing.assert_close(found, want)
    order = torch.argsort(ids, stable=True)
    offsets = torch.searchsorted(ids[order], torch.arange(5, device=device))
    assert torch.equal(segment_sum(values[order], offsets=offsets), found)
    assert torch.equal(segment_sum(values[order], ids[order], num_segments=4, sorted=True), found)
    if shape[0]:
        assert segment_sum(values, ids).shape[0] == int(ids.max()) + 1


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float16", "bfloat16",
                                   "float32", "float64", "complex64"])  # fmt: skip
def test_dtypes(device, dtype):
    kind = getattr(torch, dtype)
    values, ids = case(device, 60, 4, dtype=kind)
    found = segment_sum(values, ids, num_segments=4)
    wide = torch.complex128 if kind.is_complex else torch.float64
    want = torch.zeros(4, 4, device=device, dtype=wide).index_add_(0, ids, values.to(wide))
    assert found.dtype == (torch.int64 if not (kind.is_floating_point or kind.is_complex) else kind)
    torch.testing.assert_close(found.to(wide), want, rtol=2e-2, atol=2e-1)


def test_gradients(device):
    values, ids = case(device, 7, 3)
    values.requires_grad_()
    weights = torch.randn(4, 3, device=device, dtype=torch.float64)
    (segment_sum(values, ids, num_segments=4) * weights).sum().backward()
    assert torch.equal(values.grad, weights[ids])
    assert torch.autograd.gradcheck(lambda x: segment_sum(x, ids, num_segments=4), values)
    for dtype in (torch.int64, torch.int8, torch.uint16):  # PyTorch subtracts no uint16
        offsets = torch.tensor([0, 2, 2, 7], device=device).to(dtype)
        (sums,) = torch.autograd.grad(segment_sum(values, offsets=offsets).sum(), values)
        assert torch.equal(sums, torch.ones_like(values))
    assert torch.autograd.gradcheck(lambda x: segment_sum(x, offsets=offsets), values)


def test_opcheck(device):
    values, ids = case(device, 7, 3)
    op = torch.ops.gpureduce.segment_sum
    torch.library.opcheck(
        op, (values.requires_grad_(), ids, None, 4, None, "auto", None, True)
    )  # fmt: skip
    offsets = torch.tensor([0, 2, 7], device=device)
    torch.library.opcheck(op, (values, None, offsets, 2, torch.float32, "fast", None, False))


def test_vmap(device):
    values, ids = case(device, 6, 5, 3)
    many = torch.randint(0, 4, (6, 5), device=device)
    of_values = torch.func.vmap(lambda x: segment_sum(x, ids[:5], num_segments=4))
    of_both = torch.func.vmap(lambda x, i: segment_sum(x, i, num_segments=4))
    of_ids = torch.func.vmap(lambda i: segment_sum(values[0], i, num_segments=4))
    for found, rows in (
        (of_values(values), [segment_sum(x, ids[:5], num_segments=4) for x in values]),
        (of_both(values, many), [segment_sum(x, i, num_segments=4)
                                 for x, i in zip(values, many, strict=True)]),
        (of_ids(many), [segment_sum(values[0], i, num_segments=4) for i in many]),
    ):  # fmt: skip
        assert torch.equal(found, torch.stack(rows))
    none = torch.func.vmap(lambda x: segment_sum(x, ids[:0], num_segments=4))(values[:, :0])
    assert none.shape == (6, 4, 3) and not none.any()
    assert of_both(values[..., :0], many).shape == (6, 4, 0)
    wrong = many.clone()
    wrong[2, 1] = -1
    with pytest.raises(ValueError, match="out of range"):
        of_both(values, wrong)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_index_add(device, dim):
    x, _ = case(device, 5, 5, 5)
    source, index = case(device, 8, count=5)[0], case(device, 8, count=5)[1]
    source = torch.randn(5, 5, 5, device=device, dtype=x.dtype).index_select(dim, index)
    want = torch.index_add(x, dim, index, source, alpha=2)
    torch.testing.assert_close(index_add(x, dim, index, source, alpha=2), want)
    x.requires_grad_()
    source.requires_grad_()
    index_add(x, dim, index, source).pow(2).sum().backward()
    found = x.grad.clone(), source.grad.clone()
    x.grad = source.grad = None
    torch.index_add(x, dim, index, source).pow(2).sum().backward()
    torch.testing.assert_close(found[0], x.grad)
    torch.testing.assert_close(found[1], source.grad)


def test_index_add_under_vmap_and_opcheck(device):
    x, source = torch.randn(6, 4, 3, device=device), torch.randn(6, 9, 3, device=device)
    index = torch.randint(0, 4, (6, 9), device=device)
    want = torch.stack([index_add(*one) for one in zip(x, [0] * 6, index, source, strict=True)])
    assert torch.equal(torch.func.vmap(index_add, (0, None, 0, 0))(x, 0, index, source), want)
    want = torch.stack([index_add(x[0], 0, index[0], one) for one in source])
    assert torch.equal(torch.func.vmap(index_add, (None, None, None, 0))(x[0], 0, index[0], source),
                       want)  # fmt: skip
    one = torch.func.vmap(lambda t, s: index_add(t, 0, index[0], s), 1)(x[0], source[0])
    assert torch.equal(one.T, want[0])
    with pytest.raises((ValueError, IndexError), match="out of range"):
        torch.func.vmap(index_add, (0, None, 0, 0))(x, 0, index + 1, source)
    x, source = x[0].requires_grad_(), source[0].requires_grad_()
    torch.library.opcheck(torch.ops.gpureduce.add_rows.default, (x, index[0], source, True))


def test_index_add_rounds_once(device):
    x = torch.tensor([1e16], device=device, dtype=torch.float64)
    source = torch.tensor([1.0, 1.0, -1e16], device=device, dtype=torch.float64)
    index = torch.zeros(3, device=device, dtype=torch.int64)
    assert index_add(x, 0, index, source).item() == 2


def test_errors(device):
    values, ids = case(device, 7, 3)
    with pytest.raises(TypeError, match="not both"):
        segment_sum(values, ids, offsets=ids)
    with pytest.raises(ValueError, match="at least 1 dimension"):
        segment_sum(values[0, 0], ids)
    with pytest.raises(ValueError, match=r"out of range: num_segments=1"):
        segment_sum(values, torch.ones_like(ids), num_segments=1)
    wrong = r"segment_ids\[3\] is 3, which is out of range|index 3 is out of range for 3 rows"
    with pytest.raises((ValueError, IndexError), match=wrong):
        index_add(values[:3], 0, torch.arange(4, device=device), values[:4])
    with pytest.raises(TypeError, match="source must have the dtype of x"):
        index_add(values, 0, ids, values.float())
    with pytest.raises(TypeError, match=r"alpha must be a number of the dtype of x, .*64, not 2j"):
        index_add(values, 0, ids, values, alpha=2j)
    whole = torch.tensor([2**40 + 1], device=device)  # beyond float32, the dtype of whole * 2.0
    with pytest.raises(TypeError, match=r"alpha must be a number .* torch.int64, not 2.0"):
        index_add(whole, 0, torch.zeros_like(whole), whole, alpha=2.0)
    with pytest.raises(TypeError, match=r"index must be of int32 or int64, not torch.uint8"):
        index_add(torch.zeros(300, device=device), 0, ids.to(torch.uint8), values[:, 0].float())


@pytest.mark.filterwarnings("ignore")
def test_compile(device):
    values, ids = case(device, 64, 3)

    @torch.compile(fullgraph=True)
    def call(x, i):
        return segment_sum(x * 2, i, num_segments=4) + 1

    torch.testing.assert_close(call(values, ids), segment_sum(values * 2, ids, num_segments=4) + 1)
