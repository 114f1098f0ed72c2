"""The peer: the same calls by PyTorch's RPC, between two processes. Prints JSON like bench_rpc's own roles.

usage: torch_rpc.py RANK PORT
"""
import collections
import json
import os
import sys
import threading
import time

import torch
import torch.distributed.rpc as rpc


def percentiles(times):
    times.sort()
    return {"p50": times[len(times) // 2], "p99": times[len(times) * 99 // 100], "best": times[0], "count": len(times)}


def time_each(once, seconds=0.4, least=5, most=20000):
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


def measure(function):
    small = torch.ones(4)
    result = {
        "call": time_each(lambda: rpc.rpc_sync("worker1", function, args=(small,))),
        "remote + to_here": time_each(lambda: rpc.remote("worker1", function, args=(small,)).to_here()),
        "threads": {str(threads): sync_rate(function, threads) for threads in (1, 4, 16)},
    }
    pipelined_rate(function)
    result["pipelined"] = pipelined_rate(function)
    return result


def main():
    rank, port = int(sys.argv[1]), sys.argv[2]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.set_num_threads(1)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
    if rank == 0:
        # Builtins are the fastest it has: no Python runs at the callee.
        result = {
            "torch builtin": measure(torch.neg),
            "torch script": measure(script_negative),
            "torch python": measure(python_negative),
        }
        for mib in (1, 16):
            large = torch.ones(mib << 18)
            result["torch builtin"][f"{mib} MiB"] = time_each(
                lambda: rpc.rpc_sync("worker1", torch.select, args=(large, 0, 0))
            )
        print(json.dumps(result), flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    main()
