"""The peer: the same training by PyTorch's DistributedDataParallel over Gloo. Prints JSON like bench_collectives' trainers.

usage: torch_data_parallel.py RANK SIZE PORT
"""
import json
import math
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from common.torch_peer import percentiles

BATCH, CLASSES, RATE = 32, 10, 0.05


def numbers(shape, start, scale):
    """The same on both sides, without a generator that both would have to have."""
    count = math.prod(shape)
    return (torch.arange(count, dtype=torch.float64) + start).sin().mul(scale).float().view(shape)


def mlp():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, CLASSES))


def conv_net():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(64 * 7 * 7, CLASSES))


def set_parameters(module):
    with torch.no_grad():
        for parameter in module.parameters():
            fan_in = parameter.numel() / parameter.size(0)
            parameter.copy_(numbers(parameter.shape, 0.25 * parameter.numel(), 1 / math.sqrt(fan_in)))


def train(module, shape, steps):
    set_parameters(module)
    parallel = nn.parallel.DistributedDataParallel(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
    x = numbers((BATCH, *shape), 1000.5 * (dist.get_rank() + 1), 1)
    labels = torch.arange(BATCH) % CLASSES
    times = []
    for i in range(steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(parallel(x), labels)
        loss.backward()
        optimizer.step()
        if i >= steps // 10:
            times.append((time.perf_counter() - start) * 1e6)
    loss = loss.detach()
    dist.all_reduce(loss)
    return {"step": percentiles(times), "loss": loss.item() / dist.get_world_size()}


if __name__ == "__main__":
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=int(sys.argv[1]), world_size=int(sys.argv[2]))
    results = {"small MLP": train(mlp(), (64,), 400), "conv net": train(conv_net(), (1, 28, 28), 60)}
    if dist.get_rank() == 0:
        print(json.dumps(results), flush=True)
    dist.barrier()
