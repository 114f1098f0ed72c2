"""The peer: the same operations by Gloo, through torch.distributed. Prints JSON like bench_collectives' members.

usage: torch_collectives.py RANK SIZE PORT
"""
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.nn

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from common.torch_peer import percentiles


def time_counted(count, once):
    """As often at every member, so not by the clock."""
    for _ in range(2 + count // 10):
        once()
    times = []
    for _ in range(count):
        start = time.perf_counter()
        once()
        times.append((time.perf_counter() - start) * 1e6)
    return percentiles(times)


def measure_reduce(size, count):
    tensor = torch.zeros(size // 4)
    return time_counted(count, lambda: dist.all_reduce(tensor))


def measure_gather(size, count):
    tensor = torch.zeros(size // 4, requires_grad=True)

    def once():
        tensor.grad = None
        torch.cat(torch.distributed.nn.all_gather(tensor)).sum().backward()

    return time_counted(count, once)


if __name__ == "__main__":
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=int(sys.argv[1]), world_size=int(sys.argv[2]))
    results = {
        "all_reduce 16 B": measure_reduce(16, 3000),
        "all_reduce 1 MiB": measure_reduce(1 << 20, 200),
        "all_reduce 128 MiB": measure_reduce(128 << 20, 8),
        "all_gather 1 MiB, forward and backward": measure_gather(1 << 20, 200),
    }
    if dist.get_rank() == 0:
        print(json.dumps(results), flush=True)
    dist.barrier()
