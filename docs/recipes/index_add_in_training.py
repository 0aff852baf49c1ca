"""Train a table of word vectors, with sums that have the same bits in every run.

The rows of a batch are added up by sentence, which is a sum by segment. So is the gradient of the
look-up: each word gets the sum of the gradients of its places. Both are index_add in PyTorch, which
adds floats on a GPU in another order in each run.
"""

import hashlib

import torch

import gpureduce.torch


class Lookup(torch.autograd.Function):
    """table[index], with a gradient whose sums are rounded once."""

    @staticmethod
    def forward(ctx, table, index):
        ctx.save_for_backward(index)
        ctx.rows = len(table)
        return table[index]

    @staticmethod
    def backward(ctx, gradient):
        (index,) = ctx.saved_tensors
        return gpureduce.torch.segment_sum(gradient, index, num_segments=ctx.rows), None


def train(order_seed: int, device: str) -> str:
    """Trains for 20 steps. The words of a batch come in an order that differs by seed."""
    torch.manual_seed(1)
    words, sentences = torch.randint(0, 500, (4000,)), torch.randint(0, 64, (4000,))
    goal = torch.randn(64, 16).to(device)
    table = torch.randn(500, 16).to(device).requires_grad_()
    optimizer = torch.optim.SGD([table], lr=0.1)
    shuffled = torch.Generator().manual_seed(order_seed)
    for _ in range(20):
        order = torch.randperm(len(words), generator=shuffled)
        word, sentence = words[order].to(device), sentences[order].to(device)
        rows = Lookup.apply(table, word)
        # In place of torch.zeros(64, 16).index_add_(0, sentence, rows):
        pooled = gpureduce.torch.segment_sum(rows, sentence, num_segments=64)
        loss = gpureduce.torch.sum((pooled - goal) ** 2) / 64
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return hashlib.sha256(table.detach().cpu().numpy().tobytes()).hexdigest()[:16]


device = "cuda" if torch.cuda.is_available() else "cpu"
for seed in range(3):
    print(f"order {seed}: {train(seed, device)}")  # the same in every order
