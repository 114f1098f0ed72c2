#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace farad::bench {

/// Two processes that take turns, with nothing between them but a page of shared memory and a futex: what a floor is
/// measured with. It knows of no message, no call and no failure, so whatever does has to cost more.
///
/// A process waits as is quickest: it gives the core away where the other shares it, spins where it does not, and
/// sleeps only when that has not helped. Each process owns one, and uses it from one thread.
class Baton {
 public:
  /// Both name the same meeting (`fresh_meeting`). It is the first's turn to begin with.
  Baton(const std::string& meeting, bool first);
  ~Baton();
  Baton(const Baton&) = delete;

  /// It is the other's turn, which is told what it is for.
  void pass(int task = 0);
  /// Until it is ours. False once the other has ended.
  bool await();
  /// What the other said when it passed.
  int task() const;

  /// Writes a tensor of floats for the other to take, behind those written in this turn; in our turn only.
  void put(const at::Tensor& tensor);
  /// A copy of the next one that the other wrote in its last turn; before we put anything.
  at::Tensor take(at::IntArrayRef sizes);

 private:
  struct Page;

  bool look() const;

  const uint32_t self_;
  const std::string path_;
  Page* page_ = nullptr;
  float* next_ = nullptr;  // Of what is written, or taken, in this turn.
  bool writes_ = false;
};

}  // namespace farad::bench
