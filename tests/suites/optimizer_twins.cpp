#include "suites/optimizer_twins.h"

namespace farad::test {
namespace {

using at::Tensor;

constexpr int64_t width = 4;

Tensor make_weight(int64_t number) {
  return at::arange(width * width, at::kDouble)
      .reshape({width, width})
      .mul(0.37)
      .add(static_cast<double>(number))
      .sin()
      .mul(0.6)
      .requires_grad_();
}

Tensor layer(const Tensor& x, const Tensor& a, const Tensor& b) { return x.mm(a).tanh().mm(b); }
Tensor far_layer(const RRef<Tensor>& a, const RRef<Tensor>& b, const Tensor& x) {
  return layer(x, a.local_value(), b.local_value());
}
Tensor value_of(Tensor& parameter) { return parameter.detach(); }

}  // namespace

Twins::Twins(Group& group, std::vector<int> owners) : worker_(group[0]) {
  int64_t number = 0;
  for (const int owner : owners) {
    for (int i = 0; i < 2; i++) {
      far_.push_back(worker_.remote<make_weight>(owner, number));
      near_.push_back(make_weight(number++));
    }
  }
}

Tensor Twins::far_loss(const Tensor& input) const {
  Tensor x = input;
  for (size_t i = 0; i < far_.size(); i += 2) {
    x = worker_.rpc_sync<far_layer>(far_[i].owner(), far_[i], far_[i + 1], x);
  }
  return x.square().sum();
}

Tensor Twins::near_loss(const Tensor& input) const {
  Tensor x = input;
  for (size_t i = 0; i < near_.size(); i += 2) x = layer(x, near_[i], near_[i + 1]);
  return x.square().sum();
}

std::vector<Tensor> Twins::far_values() const {
  std::vector<Tensor> values;
  for (const auto& each : far_) values.push_back(each.rpc_sync<value_of>());
  return values;
}

void Twins::expect_equal() const {
  const auto values = far_values();
  for (size_t i = 0; i < near_.size(); i++) {
    EXPECT_TRUE(at::equal(values[i], near_[i].detach())) << "weight " << i << ":\n"
                                                         << values[i] << "\nnot\n"
                                                         << near_[i];
  }
}

Tensor Twins::input(int number) {
  return at::arange(3 * width, at::kDouble).reshape({3, width}).add(0.3 * number).cos();
}

}  // namespace farad::test
