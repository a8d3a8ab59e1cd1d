#include "fallback.h"

#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <atomic>
#include <mutex>

#include "dispatch.h"
#include "op.h"
#include "runtime_seam.h"

namespace torus {
namespace {

std::atomic<int> mode{0};

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

} // namespace

void fall_back_to_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto name = format_name(op.operator_name());
  TORCH_CHECK_NOT_IMPLEMENTED(
      fallback_mode() != FallbackMode::kError, name,
      " has no lowering for the tpu device, and the CPU fallback is forbidden "
      "(torch.tpu.cpu_fallback = \"error\"). Allow it with torch.tpu.cpu_fallback = \"warn\", or add a rule.");
  counters().fallbacks.fetch_add(1, std::memory_order_relaxed);
  if (count(name) && fallback_mode() == FallbackMode::kWarn) {
    TORCH_WARN(name, " has no lowering for the tpu device and runs on the CPU (this is said once for each op; "
               "torch.tpu.fallbacks() counts them)");
  }
  // The copies that this makes need other threads to be able to run.
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
  return static_cast<FallbackMode>(mode.load());
}

void set_fallback_mode(FallbackMode value) {
  mode.store(static_cast<int>(value));
}

} // namespace torus

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&torus::boxed_fallback>());
}
