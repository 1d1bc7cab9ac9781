"""A residual network over two GPUs, with the batch split so that both work at once; after PyTorch's tutorial."""

import sys

import torch
from digest import show
from torch import nn


class Block(nn.Module):
    def __init__(self, channels, out, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.down = nn.Conv2d(channels, out, 1, stride, bias=False) if stride != 1 else nn.Identity()

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.down(x))


class TwoDevices(nn.Module):
    def __init__(self, first, second, split):
        super().__init__()
        self.first, self.second, self.split = first, second, split
        self.seq1 = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), Block(8, 8), nn.MaxPool2d(2)).to(first)
        self.seq2 = nn.Sequential(Block(8, 16, 2), nn.AdaptiveAvgPool2d(1)).to(second)
        self.fc = nn.Linear(16, 10).to(second)

    def forward(self, x):
        splits = iter(x.split(self.split, dim=0))
        previous = self.seq1(next(splits)).to(self.second)
        results = []
        for each in splits:
            results.append(self.fc(self.seq2(previous).flatten(1)))
            previous = self.seq1(each).to(self.second)
        results.append(self.fc(self.seq2(previous).flatten(1)))
        return torch.cat(results)


def main(first, second):
    torch.manual_seed(0)
    model = TwoDevices(first, second, split=4)
    loss_of = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(3):
        inputs, labels = torch.randn(8, 3, 12, 12), torch.randint(0, 10, (8,))
        optimizer.zero_grad()
        outputs = model(inputs.to(first))
        loss = loss_of(outputs, labels.to(outputs.device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    show(losses, [str(p.device) for p in (model.seq1[0].weight, model.fc.weight)], model.state_dict())


if __name__ == "__main__":
    main(*sys.argv[1:])
