"""What the peers of all benchmarks share: processes of PyTorch's RPC, and times taken like those of sample.h."""
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


def run(measure):
    """One of the processes: SCRIPT RANK SIZE PORT WORD... The first prints what measure(words) gives, as JSON.

    With the word "tcp" they talk over sockets, as between machines; otherwise PyTorch chooses, and takes shared memory.
    """
    rank, size, port, words = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.set_num_threads(1)
    only_tcp = {"_transports": ["uv"], "_channels": ["basic"]} if "tcp" in words else {}
    options = rpc.TensorPipeRpcBackendOptions(**only_tcp)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size, rpc_backend_options=options)
    if rank == 0:
        print(json.dumps(measure(words)), flush=True)
    rpc.shutdown()
