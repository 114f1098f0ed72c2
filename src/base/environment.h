#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace farad::base {

/// Every environment variable that farad reads or sets. The order is that of variables().
enum class Var : uint8_t {
  Name,
  Rendezvous,
  Transport,
  Bind,
  Secret,
  SecretFile,
  RpcTimeout,
  JoinTimeout,
  LostAfter,
  Threads,
  Spin,
  PoolBytes,
  QueueBytes,
  LimitBody,
  LimitPayload,
  LimitTensors,
  LimitDims,
  LimitDepth,
  LimitElements,
  Operators,
  Log,
  Stacks,
  Audit,
  Rank,
  WorldSize,
  LocalRank,
  LocalWorldSize,
  MasterAddr,
  MasterPort,
  AgentStore,
  OmpThreads,
  OpenBlasKernels,
  GlibcTunables,
  OmpiRank,
  OmpiSize,
  OmpiLocalRank,
  OmpiLocalSize,
  PmixServerDirectory,
  PmixNamespace,
  PmiRank,
  PmiSize,
  SlurmRank,
  SlurmSize,
  SlurmLocalRank,
  SlurmNodes,
  SlurmStepNodeList,
  SlurmJobNodeList,
  SlurmJob,
  SlurmStep,
  NoColor,
};

/// What a variable's text has to be.
enum class Kind : uint8_t {
  Text,
  Secret,        ///< text that is never printed
  Whole,         ///< a whole number in [least, most]
  Milliseconds,  ///< a whole number in [least, most]; 0 means none
  Microseconds,  ///< a whole number in [least, most]
  Bytes,         ///< a whole number in [least, most], with K, M, G or T for powers of 1024
  Choice,        ///< one of the words that `words` separates by bars
};

/// One row of the table that `farad doctor` and docs/guide/environment.md print.
struct Variable {
  Var id;
  const char* name;
  Kind kind;
  const char* fallback;  ///< what holds when it is unset, as one would write it; empty if there is nothing
  int64_t least;
  int64_t most;
  const char* words;    ///< of a Choice
  const char* readers;  ///< who reads it
  const char* meaning;
};

std::span<const Variable> variables();
const Variable& variable(Var);

/// "a whole number from 0 to 65534", "error, warning, info or debug": what to write instead of a malformed value.
std::string expectation(const Variable&);

/// The variables of a process, or made up for a test. Immutable; any thread. Nothing else
/// in the library calls getenv.
///
/// Unset and empty mean the same: the table's default. A malformed value is Invalid, naming the variable, its value and
/// what is expected; a secret's value is not named.
class Environment {
 public:
  /// Of this process; looks when asked, so that it sees later setenv calls.
  static Environment process();
  using Values = std::map<std::string, std::string, std::less<>>;
  static Environment of(Values values);

  bool has(Var) const;
  /// The text as it is, or the default, or nothing. Any kind.
  std::optional<std::string> text(Var) const;

  /// `out` stays as it was if the variable has neither value nor default, or is malformed.
  Status read(Var, int64_t& out) const;      // Whole, Microseconds, Bytes, Milliseconds
  Status read(Var, std::string& out) const;  // Choice, Text, Secret
  /// Checks the value that is set, if one is.
  Status check(Var) const;

  /// The same where somebody waits: throws farad::Error. For variables that have a default.
  int64_t number(Var var) const {
    int64_t value = 0;
    read(var, value).raise();
    return value;
  }
  std::chrono::milliseconds span(Var var) const { return std::chrono::milliseconds(number(var)); }

 private:
  using Lookup = std::function<std::optional<std::string>(const char* name)>;
  explicit Environment(Lookup lookup) : lookup_(std::move(lookup)) {}

  Lookup lookup_;
};

}  // namespace farad::base
