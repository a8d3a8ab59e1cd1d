#include "cpu_strides.h"

#include <ATen/TensorIterator.h>

namespace torus {

std::vector<int64_t> elementwise_strides(const std::vector<at::Tensor>& operands) {
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).declare_static_dtype_and_device(at::kFloat, at::kMeta);
  config.add_owned_output(at::Tensor());
  for (const auto& operand : operands) {
    config.add_owned_const_input(operand);
  }
  return config.build().output().strides().vec();
}

} // namespace torus
