"""The peer: the same echo by PyTorch's RPC, between two processes. Prints JSON like bench_fabric's own roles.

usage: torch_rpc.py RANK PORT SIZE...
"""
import json
import os
import sys
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


def main():
    rank, port, sizes = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.set_num_threads(1)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
    if rank == 0:
        result = {}
        for size in sizes:
            tensor = torch.ones(int(size) // 4)
            # A builtin operator that copies nothing: no Python runs at the callee, so this is the fastest it has.
            result[size] = time_each(lambda: rpc.rpc_sync("worker1", torch.detach, args=(tensor,)))
        print(json.dumps(result), flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    main()
