#pragma once

#include <string>

#include "acer/board.h"

namespace farad::acer {

/// A training on disk: the model, of each worker all that decides what it does next, and how far its results were.
/// Written beside the last one and then put in its place, so that there always is a whole one once there was one.
class Checkpoint {
 public:
  /// In the directory of a training's results.
  explicit Checkpoint(const std::string& out) : out_(out), place_(out + "/checkpoint") {}

  /// Where the parts of one are written while the training goes on, and when it ends: workers do not end all at once,
  /// and what one has written then must not be swept away by one that had begun before.
  std::string next() const { return place_ + ".new"; }
  std::string at_end() const { return place_ + ".end"; }
  /// Makes one of those empty.
  static void clear(const std::string& parts);
  /// One of those, with all its parts, becomes the last one.
  void publish(const std::string& parts) const;

  /// Where the last one lies. Throws Error if there is none.
  std::string last() const;

  /// How many rows of metrics, rates and evaluations there are, and the best policy so far, become a part of one.
  void keep_results(const std::string& parts) const;
  /// Those are again what they were at the last one: rows that came after it are of steps that are made anew.
  void restore_results() const;

  static std::string model(const std::string& checkpoint) { return checkpoint + "/model"; }
  static std::string worker(const std::string& checkpoint, int number) {
    return checkpoint + "/worker" + std::to_string(number);
  }
  static std::string counts(const std::string& checkpoint) { return checkpoint + "/counts"; }

 private:
  const std::string out_, place_;
};

/// What a training counts.
void save_counts(const std::string& path, const Board& board, int workers);
void load_counts(const std::string& path, Board& board, int workers);

}  // namespace farad::acer
