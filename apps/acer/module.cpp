#include "acer/module.h"

namespace farad::acer {

const at::Tensor& Module::add_parameter(const std::string& name, at::Tensor value) {
  named_.insert(name, register_parameter(name, std::move(value)));
  return parameters_.emplace_back(named_[name]);
}

}  // namespace farad::acer
