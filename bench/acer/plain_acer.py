#!/usr/bin/env python3
"""ACER on CartPole-v1 as it is usually written: torch.multiprocessing, one shared model, a lock around the optimizer.

The same rules and hyper-parameters as `farad acer`, with each part expressed in whole-tensor operations where that is
natural in Python. Prints, as JSON, how many steps and updates it made in how many seconds, and how well snapshots of the
policy played.

usage: plain_acer.py [--workers 2] [--steps 5000] [--seed 1] [--evaluate-every STEPS] [--until RETURN]
"""

import argparse
import json
import math
import random
import resource
import time

import torch
import torch.multiprocessing as mp

WINDOW, RATIO, WINDOWS, CAPACITY, START = 20, 4, 8, 50_000, 1_000
DISCOUNT, C, DELTA, ALPHA, ENTROPY, CRITIC, CLIP = 0.99, 10.0, 1.0, 0.99, 1e-3, 0.5, 10.0
RATE, DECAY, EPSILON = 7e-4, 0.99, 1e-5
EPISODES = 20


class CartPole:
    def reset(self, rng):
        self.x = [rng.uniform(-0.05, 0.05) for _ in range(4)]
        self.steps = 0
        return list(self.x)

    def step(self, action):
        x, v, angle, spin = self.x
        force = 10.0 if action == 1 else -10.0
        sine, cosine = math.sin(angle), math.cos(angle)
        pushed = (force + 0.05 * spin * spin * sine) / 1.1
        up = (9.8 * sine - cosine * pushed) / (0.5 * (4 / 3 - 0.1 * cosine * cosine / 1.1))
        along = pushed - 0.05 * up * cosine / 1.1
        self.x = [x + 0.02 * v, v + 0.02 * along, angle + 0.02 * spin, spin + 0.02 * up]
        self.steps += 1
        terminated = abs(self.x[0]) > 2.4 or abs(self.x[2]) > 12 * 2 * math.pi / 360
        return list(self.x), 1.0, terminated, not terminated and self.steps >= 500


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = torch.nn.Sequential(
            torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh()
        )
        self.policy, self.q = torch.nn.Linear(64, 2), torch.nn.Linear(64, 2)
        with torch.no_grad():
            for head in (self.policy, self.q):
                head.weight.mul_(0.1)
                head.bias.mul_(0.1)

    def forward(self, x):
        x = self.trunk(x)
        return torch.softmax(self.policy(x), -1), self.q(x)


def learn(network, average, windows):
    """Leaves the gradient in `network`. A window: (states, actions, rewards, behaviours, terminated, after)."""
    states = torch.tensor([s for w in windows for s in w[0]])
    taken = torch.tensor([a for w in windows for a in w[1]]).unsqueeze(1)
    mu = torch.tensor([m for w in windows for m in w[3]])
    pi, q = network(states)
    with torch.no_grad():
        average_pi, _ = average(states)
        after_pi, after_q = network(torch.tensor([w[5] for w in windows]))
        after = (after_pi * after_q).sum(1)
        p, value = pi.detach(), (pi * q).sum(1).detach()
        ratio = p / mu
        taken_ratio = ratio.gather(1, taken).squeeze(1)
        taken_q = q.detach().gather(1, taken).squeeze(1)
        # Step by step in plain numbers: calls of torch would cost more than the arithmetic.
        ahead_of, trace, known, worth = (x.tolist() for x in (after, taken_ratio.clamp(max=1.0), taken_q, value))
        targets, row = [0.0] * len(states), 0
        for i, window in enumerate(windows):
            ahead = 0.0 if window[4] else ahead_of[i]
            for j in reversed(range(row, row + len(window[0]))):
                targets[j] = window[2][j - row] + DISCOUNT * ahead
                ahead = trace[j] * (targets[j] - known[j]) + worth[j]
            row += len(window[0])
        targets = torch.tensor(targets)
        advantage = targets - value
        g = (1 - C / ratio).clamp(min=0) * (q.detach() - value.unsqueeze(1)) - ENTROPY * (p.log() + 1)
        g.scatter_add_(1, taken, (taken_ratio.clamp(max=C) * advantage).unsqueeze(1) / p.gather(1, taken))
        k = -average_pi / p
        excess = (((k * g).sum(1) - DELTA) / (k * k).sum(1)).clamp(min=0)
        z = g - excess.unsqueeze(1) * k
    loss = CRITIC * 0.5 * (targets - q.gather(1, taken).squeeze(1)).pow(2).mean()
    network.zero_grad()
    torch.autograd.backward([pi, loss], [-z / len(states), torch.ones(())])
    torch.nn.utils.clip_grad_norm_(network.parameters(), CLIP)


def evaluate(policy, seed):
    """The mean return of greedy episodes, all played at once. `policy` gives the probabilities of actions."""
    rng = random.Random(-1 - seed)
    playing = [CartPole() for _ in range(EPISODES)]
    observations, total = [one.reset(rng) for one in playing], 0.0
    while playing:
        with torch.no_grad():
            actions = policy(torch.tensor(observations)).argmax(1).tolist()
        outcomes = [one.step(action) for one, action in zip(playing, actions)]
        total += sum(reward for _, reward, _, _ in outcomes)
        going_on = [i for i, (_, _, terminated, truncated) in enumerate(outcomes) if not (terminated or truncated)]
        playing, observations = [playing[i] for i in going_on], [outcomes[i][0] for i in going_on]
    return total / EPISODES


def evaluate_on_the_way(arguments, steps, snapshot, running, stop):
    """[steps, mean return] of a snapshot every so many steps. Asks for the end once the return is what is wanted."""
    found, due = [], arguments.evaluate_every
    while running():
        time.sleep(0.02)
        if due == 0 or steps.value < due:
            continue
        due = (steps.value // arguments.evaluate_every + 1) * arguments.evaluate_every
        found.append([steps.value, evaluate(snapshot(), arguments.seed)])
        if found[-1][1] >= arguments.until:
            stop()
            break
    return found


def arguments_of_a_training():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--evaluate-every", type=int, default=0)
    parser.add_argument("--until", type=float, default=math.inf)
    return parser.parse_args()


def tell(steps, updates, seconds, evaluations):
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = {"torch": torch.__version__, "steps": steps, "updates": updates, "seconds": seconds}
    told |= {"cpu seconds": used.ru_utime + used.ru_stime, "evaluations": evaluations}
    print(json.dumps(told), flush=True)


def work(number, arguments, shared, average, squares, lock, steps, updates, ended):
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed * 1000 + number)
    rng = random.Random(arguments.seed * 1000 + number)
    local, local_average = Network(), Network()
    environment, replay, observation = CartPole(), [], None

    def apply():
        with lock, torch.no_grad():
            for p, a, v, mine in zip(shared.parameters(), average.parameters(), squares, local.parameters()):
                v.mul_(DECAY).addcmul_(mine.grad, mine.grad, value=1 - DECAY)
                p.addcdiv_(mine.grad, v.sqrt().add_(EPSILON), value=-RATE)
                a.mul_(ALPHA).add_(p, alpha=1 - ALPHA)
            updates.value += 1

    def pull():
        with lock:
            local.load_state_dict(shared.state_dict())
            local_average.load_state_dict(average.state_dict())

    while steps.value < arguments.steps and not ended.value:
        pull()
        if observation is None:
            observation = environment.reset(rng)
        states, actions, rewards, behaviours, over = [], [], [], [], False
        while len(states) < WINDOW and not over:
            with torch.no_grad():
                pi, _ = local(torch.tensor(observation))
            action = int(torch.multinomial(pi, 1))
            after, reward, terminated, truncated = environment.step(action)
            states.append(observation)
            actions.append(action)
            rewards.append(reward)
            behaviours.append(pi.tolist())
            replay.append((observation, action, reward, behaviours[-1], terminated, truncated, after))
            observation, over = after, terminated or truncated
        learn(local, local_average, [(states, actions, rewards, behaviours, terminated, after)])
        apply()
        if over:
            observation = None
        del replay[: -CAPACITY // arguments.workers]
        with lock:
            steps.value += len(states)
        if len(replay) < START // arguments.workers:
            continue
        count, product, floor = 0, rng.random(), math.exp(-RATIO)
        while product > floor:
            count, product = count + 1, product * rng.random()
        for _ in range(count):
            pull()
            windows = []
            for _ in range(WINDOWS):
                begin = end = rng.randrange(len(replay))
                while end + 1 < len(replay) and end + 1 - begin < WINDOW and not (replay[end][4] or replay[end][5]):
                    end += 1
                columns = list(zip(*replay[begin : end + 1]))
                windows.append((columns[0], columns[1], columns[2], columns[3], replay[end][4], replay[end][6]))
            learn(local, local_average, windows)
            apply()


def main():
    arguments = arguments_of_a_training()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)
    shared, average = Network(), Network()
    average.load_state_dict(shared.state_dict())
    shared.share_memory()
    average.share_memory()
    squares = [torch.zeros_like(p).share_memory_() for p in shared.parameters()]
    lock = mp.Lock()
    steps, updates, ended = (mp.Value("q", 0, lock=False) for _ in range(3))
    everything = (arguments, shared, average, squares, lock, steps, updates, ended)

    def snapshot():
        network = Network()
        with lock:
            network.load_state_dict(shared.state_dict())
        return lambda states: network(states)[0]

    def stop():
        ended.value = 1

    start = time.time()
    workers = [mp.Process(target=work, args=(i, *everything)) for i in range(arguments.workers)]
    for worker in workers:
        worker.start()
    running = lambda: any(worker.is_alive() for worker in workers)
    evaluations = evaluate_on_the_way(arguments, steps, snapshot, running, stop)
    for worker in workers:
        worker.join()
    if any(worker.exitcode != 0 for worker in workers):
        raise SystemExit("a worker failed")
    tell(steps.value, updates.value, time.time() - start, evaluations)


if __name__ == "__main__":
    mp.set_start_method("fork")
    main()
