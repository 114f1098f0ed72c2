"""The peer: the same echo by PyTorch's RPC, between two processes. Prints JSON like bench_fabric's own roles.

usage: torch_rpc.py RANK SIZE PORT BYTES...
"""
import pathlib
import sys

import torch
import torch.distributed.rpc as rpc

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from common import torch_peer


def measure(sizes):
    result = {}
    for size in sizes:
        tensor = torch.ones(int(size) // 4)
        # A builtin operator that copies nothing: no Python runs at the callee, so this is the fastest it has.
        result[size] = torch_peer.time_each(lambda: rpc.rpc_sync("worker1", torch.detach, args=(tensor,)))
    return result


if __name__ == "__main__":
    torch_peer.run(measure)
