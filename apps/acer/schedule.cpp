#include "acer/schedule.h"

#include <c10/core/GradMode.h>
#include <farad/audit.h>
#include <farad/error.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "acer/actor_learner.h"
#include "acer/faulty_parameters.h"
#include "acer/stream.h"

namespace farad::acer {

namespace fs = std::filesystem;

uint64_t Schedule::updates() const {
  uint64_t count = 0;
  for (const auto& life : lives) count += life.updates.size();
  return count;
}

std::string log_of(const std::string& out, int worker, int life) {
  return out + "/schedule/worker" + std::to_string(worker) + "-" + std::to_string(life);
}

void clear_logs(const std::string& out) {
  fs::remove_all(out + "/schedule");
  fs::create_directories(out + "/schedule");
}

Schedule read_schedule(const std::string& out) {
  Schedule schedule;
  for (int worker = 0; fs::exists(log_of(out, worker, 0)); ++worker) {
    for (int life = 0; fs::exists(log_of(out, worker, life)); ++life) {
      auto& [w, l, updates] = schedule.lives.emplace_back();
      w = worker;
      l = life;
      updates.resize(fs::file_size(log_of(out, worker, life)) / sizeof(Scheduled));
      std::ifstream in(log_of(out, worker, life), std::ios::binary);
      for (auto& update : updates) update = take<Scheduled>(in);
    }
  }
  std::vector<bool> made(schedule.updates() + 1);
  for (const auto& life : schedule.lives) {
    for (const auto& update : life.updates) {
      if (update.version == 0 || update.version >= made.size() || made[update.version]) {
        throw Error("[acer] " + out + ": the logs have " + std::to_string(schedule.updates()) +
                    " updates, and one that made version " + std::to_string(update.version) +
                    "; a worker was killed before it could log one, or the training was resumed");
      }
      made[update.version] = true;
    }
  }
  if (schedule.updates() == 0)
    throw Error("[acer] " + out +
                " has no log of a training: only locked and hogwild ones are logged, and none that was resumed");
  return schedule;
}

namespace {

/// What threads throw that are not needed any more.
struct Over {};

/// The model, and as many of its past versions as somebody still wants.
class Past {
 public:
  Past(SharedModel& shared, uint64_t most_stale) : model_(shared.model), most_(most_stale + 1) { keep(); }

  void pull(const Scheduled& what, Module& network, Module& average) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failed_ || version_ >= std::max(what.version_read, what.average_read); });
    if (failed_) throw Over();
    const c10::NoGradGuard no_grad;
    copy(versions_.at(what.version_read).tensors, network);
    copy(versions_.at(what.average_read).average, average);
  }

  shared::Update step(const Scheduled& what, const Module& network) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failed_ || version_ + 1 == what.version; });
    if (failed_) throw Over();
    const auto update = model_.step(gradients_of(network));
    version_ = update.version;
    keep();
    changed_.notify_all();
    return update;
  }

  void fail(std::exception_ptr why) {
    const std::lock_guard lock(mutex_);
    if (!failed_) failed_ = std::move(why);
    changed_.notify_all();
  }
  void rethrow() const {
    if (failed_) std::rethrow_exception(failed_);
  }

 private:
  void keep() {
    versions_[version_] = model_.snapshot();
    if (version_ >= most_) versions_.erase(version_ - most_);
  }
  static void copy(const std::vector<std::pair<std::string, at::Tensor>>& from, const Module& to) {
    const auto there = to.parameters();
    for (size_t i = 0; i < there.size(); ++i) there[i].copy_(from[i].second);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  shared::Model& model_;
  const uint64_t most_;
  uint64_t version_ = 0;
  std::map<uint64_t, shared::Model::Snapshot> versions_;
  std::exception_ptr failed_;
};

class ScheduledParameters final : public Parameters {
 public:
  ScheduledParameters(Past& past, const std::vector<Scheduled>& updates) : past_(past), updates_(updates) {}

  void pull(Module& network, Module& average) override { past_.pull(next(), network, average); }
  shared::Update step(const Module& network, int64_t) override {
    const auto update = past_.step(next(), network);
    ++done_;
    return update;
  }

 private:
  const Scheduled& next() const {
    if (done_ == updates_.size()) throw Over();
    return updates_[done_];
  }

  Past& past_;
  const std::vector<Scheduled>& updates_;
  size_t done_ = 0;
};

}  // namespace

void replay_schedule(const Settings& settings, const Schedule& schedule, SharedModel& shared) {
  uint64_t most_stale = 0;
  for (const auto& life : schedule.lives) {
    for (const auto& update : life.updates)
      most_stale = std::max(most_stale, update.version - std::min(update.version_read, update.average_read));
  }
  Past past(shared, most_stale);
  std::vector<std::thread> threads;
  for (const auto& life : schedule.lives) {
    threads.emplace_back([&] {
      try {
        ScheduledParameters parameters(past, life.updates);
        const auto tally = std::make_unique<Tally>();
        FaultyParameters seen(parameters, settings);
        ActorLearner learner(settings, seen, *tally, life.worker, life.life);
        while (true) learner.turn();
      } catch (const Over&) {
      } catch (...) {
        past.fail(std::current_exception());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  past.rethrow();
}

namespace {

/// What is in the files of tensors; how often a checkpoint was replaced is in their names, and in no other's way.
std::vector<std::string> tensors_in(const std::string& checkpoint) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> all;
  for (const auto& path : paths) {
    std::ifstream in(path, std::ios::binary);
    all.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    if (!in) throw Error("[acer] cannot read " + path.string());
  }
  if (all.empty()) throw Error("[acer] there is no model in " + checkpoint);
  return all;
}

}  // namespace

bool same_to_the_bit(const std::string& one, const std::string& other) { return tensors_in(one) == tensors_in(other); }

double difference(const shared::Model::Snapshot& one, const shared::Model::Snapshot& other) {
  if (one.version != other.version) return std::numeric_limits<double>::infinity();
  double most = 0;
  for (const auto part : {&shared::Model::Snapshot::tensors, &shared::Model::Snapshot::average}) {
    for (size_t i = 0; i < (one.*part).size(); ++i) {
      const auto apart = ((one.*part)[i].second - (other.*part)[i].second).abs().max();
      most = audit::worse(most, apart.item<double>());
    }
  }
  return most;
}

}  // namespace farad::acer
