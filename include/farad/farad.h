#pragma once

/// Everything of farad, and libtorch with it. Including the single headers costs less.

#include <farad/audit.h>
#include <farad/autograd.h>
#include <farad/collectives.h>
#include <farad/data_parallel.h>
#include <farad/debug.h>
#include <farad/error.h>
#include <farad/fields.h>
#include <farad/future.h>
#include <farad/loss_scale.h>
#include <farad/module.h>
#include <farad/optim.h>
#include <farad/options.h>
#include <farad/rref.h>
#include <farad/schedule.h>
#include <farad/shared.h>
#include <farad/spawn.h>
#include <farad/version.h>
#include <farad/worker.h>
#include <torch/torch.h>
