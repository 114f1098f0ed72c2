#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "shared/segment.h"

namespace farad::shared {

/// Hands a segment to whoever asks for it by its name, in this network namespace, under the same user. The name is an
/// abstract unix socket's, which nobody has to remove; each process that holds the segment waits to take it over from
/// the one that has it, so that the name lives as long as any of them. A thread of its own.
class Broker {
 public:
  /// Whether a model can have that name at all.
  static base::Status check(const std::string& name);
  /// Invalid if the name is taken.
  static base::Status offer(const std::string& name, std::shared_ptr<Segment> segment, std::unique_ptr<Broker>& out);
  /// Asks whoever has the name, and stands by from then on. Timeout if nobody has it until the deadline.
  static base::Status fetch(const std::string& name, base::TimePoint deadline, std::shared_ptr<Segment>& segment,
                            std::unique_ptr<Broker>& out);
  /// For one that was forked off, which has none yet.
  static std::unique_ptr<Broker> stand_by(const std::string& name, std::shared_ptr<Segment> segment);

  /// In a process that was forked off it only lets go: the thread stayed with its parent.
  ~Broker();
  /// False in a process that was forked off.
  bool is_ours() const { return process_ == ::getpid(); }
  /// Whether another model came to have the name, between the end of whoever had it and our turn. Then nobody finds
  /// this one any more, and we do not look for the name any further.
  bool has_lost_the_name() const { return lost_.load(); }
  Broker(const Broker&) = delete;

 private:
  Broker(std::string name, std::shared_ptr<Segment> segment, base::Fd listening, base::Fd waiting);
  void work();
  void look_for_the_name();
  void lose_the_name();
  void serve();
  int welcome();
  static void drop(base::Fd& one);
  void hand_out(int socket) const;
  bool wait_for_news(int descriptor) const;
  bool pause() const;

  const pid_t process_;
  const std::string name_;
  const std::shared_ptr<Segment> segment_;
  // By the thread, and only while nobody forks: a child has to find all of them, to let go of them.
  base::Fd listening_;            // we have the name
  base::Fd waiting_;              // a connection to the one that has it: its end is his
  std::vector<base::Fd> served_;  // those who wait for our end
  std::atomic<bool> lost_ = false;
  base::Fd stop_;
  std::thread thread_;
};

}  // namespace farad::shared
