"""The peer: the same passes by PyTorch's dist_autograd, between two processes. Prints JSON like bench_backward's roles.

usage: torch_dist_autograd.py RANK SIZE PORT [tcp]
"""
import pathlib
import sys
import threading
import time

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from common.torch_peer import run, time_each


def chain(calls):
    a, b = torch.rand(3, 3, requires_grad=True), torch.rand(3, 3, requires_grad=True)

    def once():
        with dist_autograd.context() as context:
            y = a
            for _ in range(calls):
                # Builtins are the fastest it has: no Python runs at the callee.
                y = rpc.rpc_sync("worker1", torch.mul, args=(y, b))
            dist_autograd.backward(context, [y.sum()])

    return once


def pass_rate(threads, seconds=0.4):
    counts = [0] * threads
    start = time.monotonic()

    def work(index):
        once = chain(1)
        while time.monotonic() < start + seconds:
            once()
            counts[index] += 1

    callers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    return sum(counts) / (time.monotonic() - start)


def measure(words):
    return {
        "torch tcp" if "tcp" in words else "torch": {
            "one call": time_each(chain(1), 0.6),
            "ten calls": time_each(chain(10), 0.6),
            "threads": {str(threads): pass_rate(threads) for threads in (1, 4, 16)},
        }
    }


if __name__ == "__main__":
    run(measure)
