#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <string>
#include <vector>

namespace farad::acer {

/// A module that knows its parameters. libtorch's gathers them anew, with their names, whenever it is asked, which
/// takes longer than a layer of a small network; and a worker asks several times for each update.
class Module : public torch::nn::Module {
 public:
  using Named = torch::OrderedDict<std::string, at::Tensor>;

  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  const Named& named_parameters() const { return named_; }
  const Named& named_buffers() const { return none_; }

  /// The only way to register one.
  const at::Tensor& add_parameter(const std::string& name, at::Tensor value);

 private:
  std::vector<at::Tensor> parameters_;
  Named named_;
  const Named none_;
};

}  // namespace farad::acer
