"""Programs of PyTorch that give the same bits in every run: `gpureduce.torch.reproducible`."""
