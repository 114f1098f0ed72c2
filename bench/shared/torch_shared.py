"""The peer: the usual loops of torch.multiprocessing over one shared module. Prints updates a second of all processes.

usage: torch_shared.py 0 1 PORT Locked|Hogwild small|large PROCESSES MILLISECONDS
"""
import contextlib
import json
import sys
import time

import torch
import torch.multiprocessing as mp

WIDTHS, BATCH, RATE = {"small": 64, "large": 5000}, 8, 0.05
LEAST_STEPS = 5  # of each process on the mean: those of the large model take longer than a short run


def train(module, lock, steps, over):
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
    x = torch.randn(64, BATCH, module.weight.size(1))
    i = 0
    while not over.is_set():
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(module(x[i % 64]), x[i % 64]).backward()
        with lock or contextlib.nullcontext():
            optimizer.step()
        i += 1
        steps.value = i


def wait_until(holds, children):
    while not holds():
        if not all(child.is_alive() for child in children):
            sys.exit("a process that trains has ended")
        time.sleep(0.001)


def main():
    policy, size, processes, milliseconds = sys.argv[4], sys.argv[5], int(sys.argv[6]), int(sys.argv[7])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    module = torch.nn.Linear(WIDTHS[size], WIDTHS[size])
    module.share_memory()
    lock = mp.Lock() if policy == "Locked" else None
    over = mp.Event()
    steps = [mp.Value("q", 0, lock=False) for _ in range(processes)]
    children = [mp.Process(target=train, args=(module, lock, mine, over)) for mine in steps]
    for child in children:
        child.start()
    wait_until(lambda: all(mine.value > 0 for mine in steps), children)
    time.sleep(milliseconds / 10_000)
    before, start = sum(mine.value for mine in steps), time.monotonic()
    time.sleep(0.9 * milliseconds / 1000)
    wait_until(lambda: sum(mine.value for mine in steps) >= before + LEAST_STEPS * processes, children)
    rate = (sum(mine.value for mine in steps) - before) / (time.monotonic() - start)
    over.set()
    for child in children:
        child.join()
    print(json.dumps(rate), flush=True)


if __name__ == "__main__":
    main()
