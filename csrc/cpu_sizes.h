// Sizes of results that only say how another one was computed: the CPU's kernels save less than meta kernels promise.
#pragma once

#include <ATen/core/stack.h>

#include "op.h"

namespace torus {

// Gives the saved statistics of batch norm in evaluation, and the bookkeeping of bags, the sizes that the CPU's kernels
// give them. `results` are those of the meta kernel of `info.functional`.
void take_cpu_sizes(const OpInfo& info, at::ArrayRef<c10::IValue> args, torch::jit::Stack& results);

} // namespace torus
