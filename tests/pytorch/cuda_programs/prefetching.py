"""A loader that copies the next batch to the GPU on a side stream while the model works on this one."""

import sys

import torch
from digest import show
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Prefetcher:
    def __init__(self, loader, device):
        self.loader, self.device = iter(loader), device
        self.stream = torch.cuda.Stream(device)
        self.preload()

    def preload(self):
        try:
            self.batch = next(self.loader)
        except StopIteration:
            self.batch = None
            return
        with torch.cuda.stream(self.stream):
            self.batch = [each.to(self.device, non_blocking=True) for each in self.batch]
            self.batch[0] = self.batch[0].float().sub_(127.5).div_(64)

    def __iter__(self):
        while self.batch is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.stream)
            batch = self.batch
            for each in batch:
                each.record_stream(torch.cuda.current_stream(self.device))
            self.preload()
            yield batch


def batches(loader, device):
    if device.type == "cuda":
        yield from Prefetcher(loader, device)
    for images, labels in loader if device.type == "cpu" else ():
        yield images.float().sub_(127.5).div_(64), labels


def main(device):
    device = torch.device(device)
    torch.manual_seed(1)
    images = torch.randint(0, 256, (24, 1, 10, 10), dtype=torch.uint8)
    data = TensorDataset(images, torch.randint(0, 4, (24,)))
    loader = DataLoader(data, batch_size=8, pin_memory=device.type == "cuda")
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(2):
        for inputs, labels in batches(loader, device):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    losses = [each.item() for each in losses]
    show(losses, [str(model[0].weight.device)], model.state_dict())


if __name__ == "__main__":
    main(*sys.argv[1:])
