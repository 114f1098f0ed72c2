#!/usr/bin/env python3
"""PFRL's ACER on CartPole-v1, with the hyper-parameters of `farad acer` where PFRL has them.

What it has otherwise: updates from the replay are of one window, not of eight, and always four, not four on the mean;
statistics are logits; the entropy is not projected; no lock around the optimizer, whose epsilon is under the root (its
square here, so that the least divisor is the same). Prints what plain_acer.py prints, and takes the same options.
"""

import contextlib
import io
import logging
import tempfile
import threading
import time
import warnings

import numpy
import torch
import torch.multiprocessing as mp

with contextlib.redirect_stderr(io.StringIO()):  # Gym is to be replaced, it says.
    import pfrl
from pfrl.agents.acer import ACERDiscreteActionHead
from pfrl.optimizers.rmsprop_eps_inside_sqrt import SharedRMSpropEpsInsideSqrt
from pfrl.policies import SoftmaxCategoricalHead
from pfrl.q_functions import DiscreteActionValueHead

import plain_acer as plain


class Environment:
    """plain_acer's CartPole as PFRL wants it: the time limit is the trainer's."""

    def __init__(self, seed):
        self.pole, self.rng = plain.CartPole(), plain.random.Random(seed)

    def reset(self):
        return numpy.array(self.pole.reset(self.rng), dtype=numpy.float32)

    def step(self, action):
        observation, reward, terminated, _ = self.pole.step(int(action))
        return numpy.array(observation, dtype=numpy.float32), reward, terminated, {}

    def close(self):
        pass


def make_model():
    network = plain.Network()  # For its shape and its first values.
    heads = ACERDiscreteActionHead(
        torch.nn.Sequential(network.policy, SoftmaxCategoricalHead()),
        torch.nn.Sequential(network.q, DiscreteActionValueHead()),
    )
    return torch.nn.Sequential(network.trunk, heads)


def main():
    arguments = plain.arguments_of_a_training()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    steps, updates, over = mp.Value("q", 0, lock=False), mp.Value("q", 0), mp.Event()

    class Counted(pfrl.agents.ACER):
        def update(self, *positions, **names):
            super().update(*positions, **names)
            with updates.get_lock():
                updates.value += 1

    def make_agent(_):
        model = make_model()
        optimizer = SharedRMSpropEpsInsideSqrt(
            model.parameters(), lr=plain.RATE, eps=plain.EPSILON**2, alpha=plain.DECAY
        )
        return Counted(
            model,
            optimizer,
            t_max=plain.WINDOW,
            gamma=plain.DISCOUNT,
            replay_buffer=pfrl.replay_buffers.EpisodicReplayBuffer(plain.CAPACITY // arguments.workers),
            beta=plain.ENTROPY,
            Q_loss_coef=plain.CRITIC,
            trust_region_alpha=plain.ALPHA,
            trust_region_delta=plain.DELTA,
            truncation_threshold=plain.C,
            n_times_replay=plain.RATIO,
            replay_start_size=plain.START // arguments.workers,
            max_grad_norm=plain.CLIP,
        )

    agent = make_agent(0)

    def snapshot():
        model = make_model()
        model.load_state_dict(agent.shared_model.state_dict())
        return lambda states: model(states)[0].probs

    def count(_environment, _agent, step):
        steps.value = max(steps.value, step)

    def train():
        with tempfile.TemporaryDirectory() as directory:
            pfrl.experiments.train_agent_async(
                outdir=directory,
                processes=arguments.workers,
                make_env=lambda number, test: Environment(arguments.seed * 1000 + number),
                steps=arguments.steps,
                eval_interval=None,
                max_episode_len=500,
                agent=agent,
                make_agent=make_agent,
                global_step_hooks=[count],
                random_seeds=[arguments.seed * 1000 + number for number in range(arguments.workers)],
                stop_event=over,
            )
        over.set()

    start = time.time()
    evaluations = []
    watcher = threading.Thread(
        target=lambda: evaluations.extend(
            plain.evaluate_on_the_way(arguments, steps, snapshot, lambda: not over.is_set(), over.set)
        )
    )
    watcher.start()
    train()
    seconds = time.time() - start
    watcher.join()
    plain.tell(steps.value, updates.value, seconds, evaluations)


if __name__ == "__main__":
    mp.set_start_method("fork")
    logging.disable(logging.INFO)
    warnings.simplefilter("ignore")  # PFRL is older than this PyTorch, which says so at every update.
    main()
