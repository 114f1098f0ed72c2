#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/ids.h"
#include "base/status.h"
#include "net/rendezvous/codec.h"
#include "net/trust/secret.h"

namespace farad::net {

/// The file of a file:// meeting: a list of notes that only grows, each with a proof that its writer knew the secret;
/// a pen, which one at a time may hold to write; and a chair for each rank. Pen and chairs are byte-range locks beyond
/// the end of the file. The kernel gives them back when their holder ends, however it ends: so who sits in a chair is
/// alive, and no clock is asked. docs/design/rendezvous.md argues and has the format.
///
/// Never waits. Not for several threads at once.
class Ledger {
 public:
  Ledger(std::string path, Secret secret);
  /// Chair and pen are free after this; the file stays.
  ~Ledger() = default;

  enum class Pen { Read, Write };
  /// Opens or makes the file if need be and takes the pen. Busy while others have it. Denied: the file is not ours
  /// alone.
  base::Status take_pen(Pen);
  void drop_pen();

  // With the pen:
  /// The notes since the last read() and append(); all after rewind(). While we sit nobody clears the file, so looking
  /// again costs only what is new. Protocol: not a file of ours. Denied: notes of somebody with another secret.
  base::Status read(std::vector<meeting::Note>& notes);
  void rewind() { end_ = 0; }
  // With the pen for writing:
  /// If nobody sits, what is in the file was left by workers that are no more. Not a file of ours: as read().
  base::Status clear_if_abandoned();
  /// Only after read().
  base::Status append(const meeting::Note&);
  /// Gives the chair up and removes the file if nobody sits any more.
  void leave();

  /// `taken` is false if somebody else sits there.
  base::Status take_chair(base::Rank, bool& taken);
  bool taken_by_other(base::Rank) const;
  bool seated() const { return seated_; }

 private:
  base::Status open();
  bool replaced() const;
  bool abandoned() const;
  base::Status foreign() const;
  base::Status read_bytes(std::string& text) const;
  base::Status lock(off_t at, short type, bool& got) const;
  std::string proof(std::string_view payload) const;

  const std::string path_;
  const Secret secret_;
  base::Fd file_;
  bool seated_ = false;
  off_t end_ = 0;  // Of the last whole note that was read or appended.
};

/// Drops the pen at the end of a scope.
class PenHold {
 public:
  explicit PenHold(Ledger& ledger) : ledger_(ledger) {}
  ~PenHold() { ledger_.drop_pen(); }
  PenHold(const PenHold&) = delete;
  PenHold& operator=(const PenHold&) = delete;

 private:
  Ledger& ledger_;
};

}  // namespace farad::net
