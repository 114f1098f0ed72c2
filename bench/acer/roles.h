#pragma once

#include "common/program.h"

namespace farad::bench {

/// `farad acer` on CartPole-v1 with the options of plain_acer.py, besides --inject FAULT and --out DIRECTORY. Its last
/// line is what plain_acer.py prints.
void train(const Words& options);

/// Audits that training with the fault words[0] planted ("none": with none) and prints the verdict, as JSON.
void audit(const Words& words);

}  // namespace farad::bench
