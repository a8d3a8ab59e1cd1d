// PyTorch's word on the results of a call: its meta kernels, and the checks that an op makes of what it writes.
#pragma once

#include <ATen/core/stack.h>

#include <optional>

#include "program.h"

namespace torus {

// Calls `op` on meta tensors with the arguments of one of its forms; nothing when PyTorch has no meta kernel that can
// say. Raises what the op raises for these arguments.
std::optional<torch::jit::Stack> call_meta(const c10::OperatorHandle& op, const OpInfo& info,
                                           at::ArrayRef<c10::IValue> args);

// What `op` gives on the CPU for arguments of these sizes, values aside: for an op without a meta kernel. Nothing when
// the CPU does not have it, when it draws random numbers, or when asking would take too much memory.
std::optional<torch::jit::Stack> call_host(const c10::OperatorHandle& op, const OpInfo& info,
                                           at::ArrayRef<c10::IValue> args);

// Raises what the CPU raises for arguments of these sizes and dtypes, if it does: where a rule cannot be traced, bad
// arguments are the likely cause, and PyTorch's own words say what is wrong with them.
void raise_as_cpu(const c10::OperatorHandle& op, const OpInfo& info, at::ArrayRef<c10::IValue> args);

// The out= tensors whose sizes differ from those of the results. Raises for a dtype that they cannot take.
std::vector<Resize> needed_resizes(const OpInfo& info, at::ArrayRef<c10::IValue> args,
                                   const torch::jit::Stack& results);

// Raises what an in-place op raises: elements that share memory, bad casts, bad broadcasts.
void check_in_place(const c10::OperatorHandle& op, const OpInfo& info, at::ArrayRef<c10::IValue> args,
                    const std::optional<torch::jit::Stack>& functional);

} // namespace torus
