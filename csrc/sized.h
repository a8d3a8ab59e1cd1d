// Ops whose result has a size that is a value.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace torus {

// Runs an op whose rule needs a size that these arguments do not tell: the masks among indices become positions, the
// sum of the repeats becomes the size. False when that is not why it has no program.
bool run_sized(const c10::OperatorHandle& op, torch::jit::Stack* stack);

} // namespace torus
