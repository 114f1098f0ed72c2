#pragma once

#include <farad/worker.h>

#include <functional>

namespace farad {

/// Runs fn(worker) in n processes of this machine, each a member of one group; returns when all are done. What the
/// first to fail threw is thrown here as RemoteError, its death as PeerLost: also by exit(), with whatever code, before
/// fn has returned. The others go on, and see its loss; what is still there 10 seconds later is ended.
///
/// Forks: call it before libtorch ran in parallel, a Worker joined or a thread was started; later it throws, and says
/// so. A shared::Model may be there: each process that uses it is a worker of its own.
void spawn(int n, const std::function<void(Worker&)>& fn, WorkerOptions options = {});

/// The same in n threads of this process. What the first to fail threw is thrown as it is.
void spawn_threads(int n, const std::function<void(Worker&)>& fn, WorkerOptions options = {});

}  // namespace farad
