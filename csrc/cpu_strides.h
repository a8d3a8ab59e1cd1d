// Strides of results as the CPU's kernels give them, where PyTorch's Python meta kernels promise others.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torus {

// Of the result of an elementwise op, with the operands as the kernel reads them: on the meta device, and where it
// converts one first, as it is converted.
std::vector<int64_t> elementwise_strides(const std::vector<at::Tensor>& operands);

} // namespace torus
