"""Small models of PyTorch as people train them: what each adds by index is in another place."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import nn
from torch.nn import functional

Tensor: TypeAlias = "torch.Tensor"


class GraphNetwork(nn.Module):  # type: ignore[misc]
    """Two layers that add the messages of edges to their targets."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, x: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        for layer in self.layers:
            messages = layer(x).index_select(0, sources)
            x = x + torch.zeros_like(x).index_add_(0, targets, messages).relu()
        return x


class Recommender(nn.Module):  # type: ignore[misc]
    """Embedding bags of two tables, and a product."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.users = nn.EmbeddingBag(rows, width, mode="mean")
        self.items = nn.EmbeddingBag(rows, width, mode="sum")

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        return (self.users(users) * self.items(items)).sum(-1)


class Transformer(nn.Module):  # type: ignore[misc]
    """An embedding, one layer of attention, and logits of the next token."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layer(self.embedding(tokens)))


class Experts(nn.Module):  # type: ignore[misc]
    """Tokens go to two experts each; what these make of them is added by token."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.experts = nn.Parameter(torch.randn(count, width, width) / width**0.5)

    def forward(self, x: Tensor) -> Tensor:
        share, chosen = self.gate(x).softmax(-1).topk(2)
        order = chosen.flatten().argsort(stable=True)
        tokens = order // 2
        each = x[tokens].reshape(len(self.experts), -1, x.shape[-1])  # equal shares of rows
        made = torch.bmm(each, self.experts).reshape(-1, x.shape[-1])
        made = made * share.flatten()[order].unsqueeze(1)
        return x.scatter_add(0, tokens.unsqueeze(1).expand_as(made), made)


class Size(NamedTuple):
    """Rows that are added by index at each step, their columns, and the rows that they go to."""

    rows: int
    width: int
    table: int


MODELS = {  # as small as a test may be
    "graph": Size(4000, 32, 400),
    "recommender": Size(2048, 16, 1000),
    "transformer": Size(512, 32, 500),
    "experts": Size(256, 32, 128),
}


def model_and_loss(name: str, device: str, size: Size) -> tuple[nn.Module, Callable[[], Tensor]]:
    """A model, and the function of its loss on the same data at each step."""
    torch.manual_seed(0)
    rows, width, table = size
    if name == "graph":
        model: nn.Module = GraphNetwork(width)
        x, ends = torch.randn(table, width), torch.randint(0, table, (2, rows))
        ends[1] = ends[1] ** 2 // table  # some nodes have many edges
        data = [x.to(device), *ends.to(device)]
        return model.to(device), lambda: model(*data).square().mean()
    if name == "recommender":
        model = Recommender(table, width)
        data = [(torch.rand(rows // 8, 8) ** 3 * table).long().to(device) for _ in range(2)]
        return model.to(device), lambda: model(*data).sigmoid().mean()
    if name == "transformer":
        model = Transformer(table, width)
        tokens = (torch.rand(8, rows // 8 + 1) ** 3 * table).long().to(device)
        model = model.to(device)
        return model, lambda: functional.cross_entropy(
            model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
        )
    model = Experts(4, width).to(device)
    x = torch.randn(table, width).to(device)  # two rows are made of each
    return model, lambda: model(x).square().mean()


def step_of(
    name: str, device: str, size: Size, compiled: bool = False
) -> tuple[nn.Module, Callable[[], Tensor]]:
    """A model, and a function that trains it by one step and returns the loss."""
    model, loss_of = model_and_loss(name, device, size)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loss_of = torch.compile(loss_of) if compiled else loss_of

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return model, step


def train(
    name: str, device: str, steps: int, size: Size, compiled: bool = False
) -> tuple[Tensor, str]:
    """The losses, and a digest of the weights after the last step."""
    model, step = step_of(name, device, size, compiled)
    losses = [step() for _ in range(steps)]
    weights = torch.cat([p.detach().flatten() for p in model.parameters()]).cpu()
    return torch.stack(losses).cpu(), hashlib.sha256(weights.numpy().tobytes()).hexdigest()
