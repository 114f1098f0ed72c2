#pragma once

#include <unistd.h>

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
  Broker(const Broker&) = delete;

 private:
  Broker(std::string name, std::shared_ptr<Segment> segment, base::Fd listening, base::Fd waiting);
  void work();
  void serve();
  void hand_out(int socket) const;
  bool wait_for_news(int descriptor) const;
  bool pause() const;

  const pid_t process_;
  const std::string name_;
  const std::shared_ptr<Segment> segment_;
  base::Fd listening_;            // we have the name
  base::Fd waiting_;              // a connection to the one that has it: its end is his
  std::vector<base::Fd> served_;  // those who wait for our end
  base::Fd stop_;
  std::thread thread_;
};

}  // namespace farad::shared
