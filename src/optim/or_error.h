#pragma once

#include <farad/error.h>
#include <farad/future.h>

namespace farad::optim {

/// The future that `call` gives; if it throws instead, one that fails with that.
template <class Reply, class Call>
Reply or_error(const Call& call) {
  try {
    return call();
  } catch (const Error&) {
    const Promise<typename Reply::value_type> promise;
    promise.set_exception(std::current_exception());
    return promise.future();
  }
}

}  // namespace farad::optim
