// Nested tensors of strided layout, which attention over jagged ones and padded batches is made of: a buffer on the
// device, sizes on the host. PyTorch's kernels for them call ops on the buffer; those that CPU and CUDA share, or that
// could be shared, serve this device too.
#include <ATen/NestedTensorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/nested/NestedTensorUtils.h>
#include <ATen/ops/native_layer_norm.h>
#include <torch/library.h>

#include <string>
#include <unordered_set>

#include "op.h"

namespace torus {
namespace {

// The CPU's own, which read the memory of the buffer.
const std::unordered_set<std::string>& readers_of_memory() {
  static const std::unordered_set<std::string> names = {"aten::_nested_sum_backward", "aten::_pin_memory",
                                                        "aten::native_layer_norm_backward", "aten::sum"};
  return names;
}

template <c10::DispatchKey key>
void run_kernel_of(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(key), stack);
}

// PyTorch takes all of a storage for the buffer. What a mask selects is here the front of a larger storage.
template <c10::DispatchKey key>
void run_selection_of(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  run_kernel_of<key>(op, keys, stack);
  const auto result = stack->back().toTensor();
  const auto* nested = at::native::get_nested_tensor_impl(result);
  const auto numel = result.numel();
  if (static_cast<int64_t>(nested->get_buffer_size()) != numel) {
    stack->back() = at::native::wrap_buffer(nested->get_unsafe_storage_as_tensor().narrow(0, 0, numel).clone(),
                                            nested->get_nested_sizes());
  }
}

// Queries, keys and values side by side: padded, as all kernels do first.
void run_padded(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  auto& packed = (*stack)[stack->size() - op.schema().arguments().size()];
  packed = packed.toTensor().to_padded_tensor(0);
  op.callBoxed(stack);
}

// The shared kernel asks for the CPU's or CUDA's own of a dense tensor.
void run_layer_norm(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto args = torch::jit::pop(*stack, 5);
  const auto x = args[0].toTensor();
  const auto shape = args[1].toDimVector();
  const auto* nested = at::native::get_nested_tensor_impl(x);
  auto rows = std::vector<int64_t>{-1};
  rows.insert(rows.end(), shape.begin(), shape.end());
  auto [result, mean, rstd] =
      at::native_layer_norm(nested->get_buffer().reshape(rows), shape, args[2].toOptional<at::Tensor>(),
                            args[3].toOptional<at::Tensor>(), args[4].toDouble());
  torch::jit::push(*stack, at::native::wrap_buffer(result.reshape({-1}), nested->get_nested_sizes()), mean, rstd);
}

void refuse(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, op.operator_name().name,
                              " has no kernel for nested tensors on the tpu device. Apply it to each of x.unbind().");
}

torch::CppFunction kernel_for(const c10::OperatorName& name) {
  constexpr auto key = c10::DispatchKey::NestedTensorCPU;
  if (name == c10::OperatorName("aten::matmul", "") ||
      name == c10::OperatorName("aten::_nested_from_padded_and_nested_example", "")) {
    return torch::CppFunction::makeFromBoxedFunction<&run_selection_of<key>>();
  }
  if (name == c10::OperatorName("aten::_transform_bias_rescale_qkv", "")) {
    return torch::CppFunction::makeFromBoxedFunction<&run_padded>();
  }
  if (name == c10::OperatorName("aten::native_layer_norm", "")) {
    return torch::CppFunction::makeFromBoxedFunction<&run_layer_norm>();
  }
  return torch::CppFunction::makeFromBoxedFunction<&run_kernel_of<key>>();
}

} // namespace
} // namespace torus

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (op.has_value() && op->hasKernelForDispatchKey(c10::DispatchKey::NestedTensorCPU) &&
        torus::readers_of_memory().count(name.name) == 0) {
      m.impl(torus::format_name(name).c_str(), torus::kernel_for(name));
    }
  }
}

// From tensors to nested ones.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  constexpr auto key = c10::DispatchKey::CPU;
  for (const auto* name :
       {"_nested_tensor_from_mask", "_nested_tensor_from_mask_left_aligned", "_nested_view_from_buffer"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&torus::run_kernel_of<key>>());
  }
  m.impl("_nested_from_padded", torch::CppFunction::makeFromBoxedFunction<&torus::run_selection_of<key>>());
}

TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&torus::refuse>());
}
