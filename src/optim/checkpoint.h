#pragma once

#include <farad/detail/optimizer.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "optim/safetensors.h"

/// A directory with what an optimizer and its parameters are: files of tensors, and a manifest that names them with
/// their sizes and checksums.
///
/// New files have new names. The manifest is written aside and then renamed, which is one instant: before it the
/// directory holds the last checkpoint, after it the new one, whenever the process ends. Files that no manifest names
/// are removed by the next one that is written. A directory with a manifest that is not of such a checkpoint is none of
/// ours: nothing in it is touched.
namespace farad::optim {

/// What the manifest says beside its files.
struct CheckpointFacts {
  struct Group {
    detail::OptimizerSettings settings;  ///< with the learning rate that it had last
    int64_t parameters = 0;
  };
  std::vector<Group> groups;
};

class CheckpointWriter {
 public:
  explicit CheckpointWriter(std::string directory) : directory_(std::move(directory)) {}
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;

  /// Makes the directory if there is none, and has it for its life: nobody else begins there meanwhile, in whatever
  /// process, because each would remove the other's files. Refuses one whose checkpoint has other optimizers or numbers
  /// of parameters than `facts`, and one whose manifest cannot be read.
  base::Status begin(const CheckpointFacts& facts);
  base::Status add(const NamedTensors& tensors);
  /// From here on this is the checkpoint.
  base::Status finish(const CheckpointFacts& facts);

 private:
  base::Status lock();
  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  void remove_others() const;

  const std::string directory_;
  base::Fd lock_;
  uint64_t generation_ = 0;
  std::vector<std::pair<std::string, FileMark>> files_;
  bool finished_ = false;
};

/// All of it, or an error that names the file and says what is wrong with it.
base::Status read_checkpoint(const std::string& directory, CheckpointFacts& facts, NamedTensors& tensors);

}  // namespace farad::optim
