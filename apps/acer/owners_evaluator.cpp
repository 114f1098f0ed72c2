#include "acer/owners_evaluator.h"

#include <farad/error.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "acer/environments/registry.h"

namespace farad::acer {
namespace {

/// Names of models are shorter, so one is written at once, or not at all.
constexpr size_t longest_name = 256;

void live(const Settings& settings, int requests, int results) {
  char name[longest_name] = {};
  ssize_t count;
  while ((count = ::read(requests, name, sizeof name)) < 0 && errno == EINTR) {
  }
  if (count != sizeof name) return;  // Nobody wants it.
  const auto spec = make_environment(settings.environment)->spec();
  const auto network = make_network(settings.shape(spec), Random(0));
  auto model = shared::Model::attach(name, *network, {.read_only = true});
  serve_evaluations(settings, model, requests, results);
}

}  // namespace

OwnersEvaluator::OwnersEvaluator(const Settings& settings) {
  process_ = start_process([&] {
    requests_.close_writing();
    results_.close_reading();
    live(settings, requests_.reading(), results_.writing());
  });
  // All ends stay open here: to write where nobody reads would be a signal that ends the owner.
}

void OwnersEvaluator::look_at(const std::string& model) {
  char name[longest_name] = {};
  model.copy(name, sizeof name - 1);
  if (is_there() && ::write(requests_.writing(), name, sizeof name) != sizeof name)
    throw Error(std::string("[acer] the process that evaluates cannot be told of the model: ") + std::strerror(errno));
}

bool OwnersEvaluator::ask(int64_t steps) {
  busy_ = is_there() && ::write(requests_.writing(), &steps, sizeof steps) == sizeof steps;
  return busy_;
}

std::optional<Evaluation> OwnersEvaluator::hear(std::chrono::milliseconds wait) {
  pollfd ready{results_.reading(), POLLIN, 0};
  Evaluation evaluation;
  if (::poll(&ready, 1, static_cast<int>(wait.count())) > 0 && (ready.revents & POLLIN) &&
      ::read(results_.reading(), &evaluation, sizeof evaluation) == sizeof evaluation) {
    busy_ = false;
    return evaluation;
  }
  busy_ = is_there();
  return {};
}

bool OwnersEvaluator::is_there() {
  int status = 0;
  if (process_ <= 0) return false;
  if (::waitpid(process_, &status, WNOHANG) == 0) return true;
  process_ = -1;
  ending_ = "the process that evaluates " + ending_of(status);
  return false;
}

void OwnersEvaluator::end() {
  if (process_ <= 0) return;
  ::kill(process_, SIGKILL);  // It has nothing left to do that anybody waits for.
  ::waitpid(process_, nullptr, 0);
  process_ = -1;
}

}  // namespace farad::acer
