#!/usr/bin/env python3
"""An environment for `farad acer --env "pipe:python3 walk.py"`: seven places in a row, the right end is worth going to."""

import json
import random
import sys

PLACES = 7


def say(message):
    print(json.dumps(message), flush=True)


def observation(place):
    return [1.0 if i == place else 0.0 for i in range(PLACES)]


say({"name": "Walk", "observation": PLACES, "actions": 2, "time_limit": 50, "solved": 0.9})
place = 0
for line in sys.stdin:
    request = json.loads(line)
    if "reset" in request:
        place = random.Random(request["reset"]).randrange(1, PLACES - 1)
        say({"observation": observation(place)})
    else:
        place += 1 if request["step"] == 1 else -1
        over = place in (0, PLACES - 1)
        reward = 1.0 if place == PLACES - 1 else -0.01
        say({"observation": observation(place), "reward": reward, "terminated": over})
