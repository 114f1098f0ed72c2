#pragma once

#include "common/program.h"

namespace farad::bench {

/// Offers a model and writes, as JSON, what happens while others train it: the name of the model, a policy, "small" or
/// "large", how many train it, for how many milliseconds. Under Managed it is the manager.
void offer(const Words&);
/// Trains that model until it is told to end: its name, "small" or "large".
void train(const Words&);
/// Trains the like by itself, with nothing around libtorch's own operations, and writes how many updates a second that
/// makes: "small" or "large", milliseconds.
void train_alone(const Words&);
/// Trains the like with others by a Group, without shared memory, and writes how many updates a second all of them make
/// together: where they meet, a transport, how many they are, which of them it is, "small" or "large", milliseconds.
void reduce(const Words&);
/// Offers a model of which each element is increased by one so many times, and writes, as JSON, which part of the
/// increases was lost: the name of the model, a policy, how many increase it, "small" or "large".
void tally(const Words&);
/// Increases that model once all have come: its name, how many do, "small" or "large".
void increase(const Words&);
/// Times of a snapshot of a model of 100 MB and of copying as many bytes, as JSON.
void look(const Words&);

}  // namespace farad::bench
