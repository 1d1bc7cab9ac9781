"""DataParallel over all GPUs, with a checkpoint that is loaded onto another one."""

import io
import sys

import torch
from digest import show
from torch import nn


def main(device):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
    inputs, targets = torch.randn(8, 6), torch.randn(8, 3)
    if device == "cuda":
        model = nn.DataParallel(model.cuda())
        outputs, targets = model(inputs.cuda()), targets.cuda()
    else:
        outputs = torch.cat([model(each) for each in inputs.chunk(2)])
    loss = (outputs - targets).square().mean()
    loss.backward()
    saved = io.BytesIO()
    torch.save({name: p.grad for name, p in model.named_parameters()}, saved)
    saved.seek(0)
    moved = torch.load(saved, map_location="cuda:1" if device == "cuda" else "cpu")
    gradients = {name.removeprefix("module."): p for name, p in moved.items()}
    show([loss.item()], sorted({str(p.device) for p in gradients.values()}), gradients)


if __name__ == "__main__":
    main(*sys.argv[1:])
