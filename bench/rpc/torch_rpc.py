"""The peer: the same calls by PyTorch's RPC, between two processes. Prints JSON like bench_rpc's own roles.

usage: torch_rpc.py RANK SIZE PORT [tcp]
"""
import collections
import pathlib
import sys
import threading
import time

import torch
import torch.distributed.rpc as rpc

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from common.torch_peer import run, time_each


@torch.jit.script
def script_negative(x):
    return torch.neg(x)


def python_negative(x):
    return torch.neg(x)


def sync_rate(function, threads, seconds=0.4):
    small = torch.ones(4)
    counts = [0] * threads
    start = time.monotonic()

    def work(index):
        while time.monotonic() < start + seconds:
            rpc.rpc_sync("worker1", function, args=(small,))
            counts[index] += 1

    callers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    return sum(counts) / (time.monotonic() - start)


def pipelined_rate(function, seconds=0.4):
    small = torch.ones(4)
    under_way = collections.deque()
    count = 0
    start = time.monotonic()
    while time.monotonic() < start + seconds:
        if len(under_way) == 256:
            under_way.popleft().wait()
        under_way.append(rpc.rpc_async("worker1", function, args=(small,)))
        count += 1
    for future in under_way:
        future.wait()
    return count / (time.monotonic() - start)


def measure_one(function):
    small = torch.ones(4)
    result = {
        "call": time_each(lambda: rpc.rpc_sync("worker1", function, args=(small,))),
        "remote + to_here": time_each(lambda: rpc.remote("worker1", function, args=(small,)).to_here()),
        "threads": {str(threads): sync_rate(function, threads) for threads in (1, 4, 16)},
    }
    pipelined_rate(function)
    result["pipelined"] = pipelined_rate(function)
    return result


def measure(words):
    torch_by = "torch tcp" if "tcp" in words else "torch"
    # Builtins are the fastest it has: no Python runs at the callee.
    result = {
        f"{torch_by} builtin": measure_one(torch.neg),
        f"{torch_by} script": measure_one(script_negative),
        f"{torch_by} python": measure_one(python_negative),
    }
    for mib in (1, 16):
        large = torch.ones(mib << 18)
        result[f"{torch_by} builtin"][f"{mib} MiB"] = time_each(
            lambda: rpc.rpc_sync("worker1", torch.select, args=(large, 0, 0))
        )
    return result


if __name__ == "__main__":
    run(measure)
