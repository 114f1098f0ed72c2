"""The peer: the same passes by PyTorch's dist_autograd, between two processes. Prints JSON like bench_backward's roles.

usage: torch_dist_autograd.py RANK PORT
"""
import json
import os
import sys
import threading
import time

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc


def percentiles(times):
    times.sort()
    return {"p50": times[len(times) // 2], "p99": times[len(times) * 99 // 100], "best": times[0], "count": len(times)}


def time_each(once, seconds=0.6, least=5, most=20000):
    until = time.monotonic() + seconds / 10
    count = 0
    while count < least or (count < most and time.monotonic() < until):
        once()
        count += 1
    times = []
    until = time.monotonic() + seconds
    while len(times) < least or (len(times) < most and time.monotonic() < until):
        start = time.perf_counter()
        once()
        times.append((time.perf_counter() - start) * 1e6)
    return percentiles(times)


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


def main():
    rank, port = int(sys.argv[1]), sys.argv[2]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.set_num_threads(1)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
    if rank == 0:
        result = {
            "one call": time_each(chain(1)),
            "ten calls": time_each(chain(10)),
            "threads": {str(threads): pass_rate(threads) for threads in (1, 4, 16)},
        }
        print(json.dumps({"torch": result}), flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    main()
