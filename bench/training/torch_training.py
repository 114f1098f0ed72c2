"""The peer: the same training by PyTorch's dist_autograd and DistributedOptimizer. Prints JSON like bench_training's roles.

usage: torch_training.py RANK SIZE PORT step|server
"""
import pathlib
import sys
import time

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch.distributed.optim import DistributedOptimizer

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from common.torch_peer import run, time_each

WIDTH, BATCH, RATE = 256, 32, 1e-3


def references_to(module):
    return [rpc.RRef(parameter) for parameter in module.local_value().parameters()]


def measure_step():
    linear = rpc.remote("worker1", torch.nn.Linear, args=(WIDTH, WIDTH))
    parameters = rpc.rpc_sync("worker1", references_to, args=(linear,))
    # Of SGD it has a TorchScript version, which it takes by itself: the fastest it has.
    optimizer = DistributedOptimizer(torch.optim.SGD, parameters, lr=RATE)
    x = torch.rand(BATCH, WIDTH)

    def step():
        with dist_autograd.context() as context:
            dist_autograd.backward(context, [linear.rpc_sync().forward(x).sum()])
            optimizer.step(context)

    return {"all": time_each(step, 1.0)}


def train_for(weight, seconds):
    optimizer = DistributedOptimizer(torch.optim.SGD, [weight], lr=RATE)
    x = torch.rand(BATCH, WIDTH)
    steps, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        with dist_autograd.context() as context:
            dist_autograd.backward(context, [x.mm(weight.to_here()).sum()])
            optimizer.step(context)
        steps += 1
    return steps


def steps_per_second(weight, trainers, seconds):
    calls = [rpc.rpc_async(f"worker{rank}", train_for, args=(weight, seconds)) for rank in range(1, trainers + 1)]
    return sum(call.wait() for call in calls) / seconds


def measure_server(trainers):
    weight = rpc.RRef(torch.rand(WIDTH, WIDTH, requires_grad=True))
    steps_per_second(weight, trainers, 0.2)
    return steps_per_second(weight, trainers, 1.0)


def measure(words):
    return measure_step() if words[0] == "step" else measure_server(int(sys.argv[2]) - 1)


if __name__ == "__main__":
    run(measure)
