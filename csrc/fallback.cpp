#include "fallback.h"

#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <atomic>
#include <mutex>
#include <unordered_set>

#include "dispatch.h"
#include "op.h"
#include "runtime_seam.h"
#include "sized.h"
#include "trace.h"

namespace torus {
namespace {

std::atomic<int> chosen_mode{0};

struct Counts {
  std::mutex mutex;
  std::map<std::string, int64_t> by_op;
};

Counts& counts() {
  static auto* c = new Counts();
  return *c;
}

bool count(const std::string& name) {
  auto& c = counts();
  std::lock_guard<std::mutex> lock(c.mutex);
  return ++c.by_op[name] == 1;
}

void boxed_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  fall_back_to_cpu(op, stack);
}

[[noreturn]] void refuse(const std::string& name, bool quantized) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, name, ": ", quantized ? "quantized" : "sparse",
                              " tensors have no kernels on the tpu device. Keep the tensor on the CPU, or make it "
                              "dense (",
                              quantized ? "x.dequantize()" : "x.to_dense()", ") there before x.to(\"tpu\").");
}

// Storages that this device has no kernels for, by dispatch key.
void refuse_storage(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack*) {
  refuse(format_name(op.operator_name()), keys.highestPriorityTypeId() == c10::DispatchKey::QuantizedPrivateUse1);
}

} // namespace

bool reads_host(const std::string& name) {
  static const std::unordered_set<std::string> names{"aten::unique_dim", "aten::unique_dim_consecutive"};
  return names.count(name) != 0;
}

void fall_back_to_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (run_sized(op, stack)) {
    return;
  }
  const auto name = format_name(op.operator_name());
  if (op.schema().name() == "aten::_to_sparse") { // the CPU would make what the device cannot hold
    refuse(name, false);
  }
  if (reads_host(name)) {
    at::native::cpu_fallback(op, stack);
    return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      fallback_mode() != FallbackMode::kError, name,
      " has no lowering for the tpu device, and the CPU fallback is forbidden "
      "(torch.tpu.cpu_fallback = \"error\"). Allow it with torch.tpu.cpu_fallback = \"warn\", or add a rule.");
  counters().fallbacks.fetch_add(1, std::memory_order_relaxed);
  if (count(name) && fallback_mode() == FallbackMode::kWarn) {
    TORCH_WARN(name,
               " has no lowering for the tpu device and runs on the CPU (this is said once for each op; "
               "torch.tpu.fallbacks() counts them)");
  }
  const CauseScope cause(Cause::kFallback);
  at::native::cpu_fallback(op, stack);
}

std::map<std::string, int64_t> fallback_counts() {
  auto& c = counts();
  std::lock_guard<std::mutex> lock(c.mutex);
  return c.by_op;
}

void reset_fallback_counts() {
  auto& c = counts();
  std::lock_guard<std::mutex> lock(c.mutex);
  c.by_op.clear();
}

FallbackMode fallback_mode() {
  return static_cast<FallbackMode>(chosen_mode.load());
}

void set_fallback_mode(FallbackMode value) {
  chosen_mode.store(static_cast<int>(value));
}

} // namespace torus

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&torus::boxed_fallback>());
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&torus::refuse_storage>());
}

TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&torus::refuse_storage>());
}

TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&torus::refuse_storage>());
}
