#include "meta.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty_strided.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

#include <algorithm>

namespace torus {
namespace {

at::Tensor to_meta(const at::Tensor& tensor) {
  // Numbers stay what they are: meta kernels accept CPU tensors without dimensions as device kernels do.
  if (!tensor.defined() || (tensor.device().is_cpu() && tensor.dim() == 0)) {
    return tensor;
  }
  return at::Tensor(at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type(), std::nullopt,
                                                   c10::Device(c10::DeviceType::Meta), std::nullopt));
}

c10::IValue replace_tensors(const ArgInfo& info, const c10::IValue& value, at::Tensor (*map)(const at::Tensor&),
                            c10::DeviceType device) {
  if (value.isTensor()) {
    return map(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const auto& element : value.toListRef()) {
      list.push_back(map(element.toTensor()));
    }
    return list;
  }
  if (info.kind == ArgKind::kTensorList && value.isList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& element : value.toListRef()) {
      list.push_back(element.isNone() ? std::optional<at::Tensor>() : map(element.toTensor()));
    }
    return list;
  }
  if (value.isDevice()) {
    return c10::Device(device);
  }
  if (info.kind == ArgKind::kGenerator || info.name == "pin_memory") {
    return {};
  }
  return value;
}

c10::IValue dtype_of_result(const OpInfo& info, at::ArrayRef<c10::IValue> args) {
  for (size_t i = 0; i < args.size(); ++i) {
    if (info.args[i].written && args[i].isTensor()) {
      return static_cast<int64_t>(args[i].toTensor().scalar_type());
    }
  }
  return {};
}

at::Tensor to_small_host(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().is_cpu()) {
    return tensor;
  }
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::DeviceType::CPU)).zero_();
}

using TensorMap = at::Tensor (*)(const at::Tensor&);

// The arguments of `op` by name from a call of one of its forms, tensors replaced.
torch::jit::Stack arguments_for(const c10::OperatorHandle& op, const OpInfo& info, at::ArrayRef<c10::IValue> args,
                                TensorMap map, c10::DeviceType device) {
  torch::jit::Stack stack;
  for (const auto& argument : op.schema().arguments()) {
    const auto found =
        std::find_if(info.args.begin(), info.args.end(), [&](const ArgInfo& i) { return i.name == argument.name(); });
    if (found != info.args.end()) {
      stack.push_back(replace_tensors(*found, args[static_cast<size_t>(found - info.args.begin())], map, device));
    } else if (argument.name() == "device") {
      stack.emplace_back(c10::Device(device));
    } else if (argument.name() == "dtype") {
      stack.push_back(dtype_of_result(info, args));
    } else {
      stack.push_back(argument.default_value().value_or(c10::IValue()));
    }
  }
  return stack;
}

// What the CPU gives for arguments of these sizes, values aside; nothing when that would take too much memory.
std::optional<torch::jit::Stack> call_on_sizes(const c10::OperatorHandle& op, const OpInfo& info,
                                               at::ArrayRef<c10::IValue> args) {
  constexpr int64_t kSmall = 1 << 24;
  int64_t total = 0;
  for (const auto& value : args) {
    total += value.isTensor() && value.toTensor().defined() ? value.toTensor().numel() : 0;
  }
  if (total > kSmall) {
    return std::nullopt;
  }
  auto stack = arguments_for(op, info, args, &to_small_host, c10::DeviceType::CPU);
  op.callBoxed(&stack);
  return stack;
}

// Meta kernels written in Python do not always raise what the op raises. The CPU does. True when the CPU has no
// objection, so that the meta kernel was wrong.
bool cpu_accepts(const c10::OperatorHandle& op, const OpInfo& info, at::ArrayRef<c10::IValue> args) {
  return call_on_sizes(op, info, args).has_value();
}

} // namespace

void raise_as_cpu(const c10::OperatorHandle& op, const OpInfo& info, at::ArrayRef<c10::IValue> args) {
  try {
    cpu_accepts(op, info, args);
  } catch (const c10::NotImplementedError&) { // there is no kernel for the CPU
  } catch (const c10::LinAlgError&) {         // zeros have no inverse
  }
}

std::optional<torch::jit::Stack> call_host(const c10::OperatorHandle& op, const OpInfo& info,
                                           at::ArrayRef<c10::IValue> args) {
  const bool draws = std::any_of(info.args.begin(), info.args.end(),
                                 [](const ArgInfo& arg) { return arg.kind == ArgKind::kGenerator; });
  if (draws) { // the CPU's generator would move
    return std::nullopt;
  }
  try {
    return call_on_sizes(op, info, args);
  } catch (const c10::NotImplementedError&) { // there is no kernel for the CPU
    return std::nullopt;
  }
}

std::optional<torch::jit::Stack> call_meta(const c10::OperatorHandle& op, const OpInfo& info,
                                           at::ArrayRef<c10::IValue> args) {
  auto stack = arguments_for(op, info, args, &to_meta, c10::DeviceType::Meta);
  try {
    op.callBoxed(&stack);
  } catch (const c10::NotImplementedError&) {
    return std::nullopt;
  } catch (python_error& error) {
    error.persist();
    // An AttributeError is a fault of the meta kernel (the LSTM cell's, without biases), and no answer either.
    if (PyErr_GivenExceptionMatches(error.type, PyExc_NotImplementedError) ||
        PyErr_GivenExceptionMatches(error.type, PyExc_AttributeError)) {
      return std::nullopt;
    }
    if (cpu_accepts(op, info, args)) {
      return std::nullopt;
    }
    throw;
  } catch (pybind11::error_already_set& error) {
    if (error.matches(PyExc_NotImplementedError) || error.matches(PyExc_AttributeError)) {
      return std::nullopt;
    }
    if (cpu_accepts(op, info, args)) {
      return std::nullopt;
    }
    throw;
  } catch (const c10::Error&) {
    if (cpu_accepts(op, info, args)) {
      return std::nullopt;
    }
    throw;
  }
  return stack;
}

namespace {

void check_cast(const c10::IValue& result, const c10::IValue& target) {
  if (result.isTensor() && target.isTensor() && result.toTensor().defined()) {
    const auto from = result.toTensor().scalar_type();
    const auto to = target.toTensor().scalar_type();
    TORCH_CHECK(c10::canCast(from, to), "result type ", from, " can't be cast to the desired output type ", to);
  }
}

} // namespace

std::vector<Resize> needed_resizes(const OpInfo& info, at::ArrayRef<c10::IValue> args,
                                   const torch::jit::Stack& results) {
  std::vector<Resize> resizes;
  int32_t position = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!info.args[i].result_only || !args[i].isTensor()) {
      continue;
    }
    const auto index = static_cast<size_t>(position);
    if (index < results.size() && results[index].isTensor()) {
      check_cast(results[index], args[i]);
      at::assert_no_internal_overlap(args[i].toTensor());
      const auto& wanted = results[index].toTensor();
      if (wanted.defined() && wanted.sizes() != args[i].toTensor().sizes()) {
        resizes.push_back({position, wanted.sizes().vec(), wanted.strides().vec(), wanted.is_contiguous()});
      }
    }
    ++position;
  }
  return resizes;
}

void check_in_place(const c10::OperatorHandle& op, const OpInfo& info, at::ArrayRef<c10::IValue> args,
                    const std::optional<torch::jit::Stack>& functional) {
  for (size_t i = 0; i < args.size(); ++i) {
    if (info.args[i].written && args[i].isTensor() && !info.allows_shared_elements) {
      at::assert_no_internal_overlap(args[i].toTensor());
    }
  }
  if (functional.has_value()) {
    size_t result = 0;
    for (size_t i = 0; i < args.size() && result < functional->size(); ++i) {
      if (info.args[i].written) {
        check_cast((*functional)[result++], args[i]);
      }
    }
  }
  // The in-place op's own meta kernel raises what else it would raise, bad broadcasts above all.
  call_meta(op, info, args);
}

} // namespace torus
