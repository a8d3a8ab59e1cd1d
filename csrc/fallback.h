// Ops without a lowering run on the CPU: warned about once each, counted, and forbidden on request.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <map>
#include <string>

namespace torus {

enum class FallbackMode : int { kWarn, kSilent, kError };

void fall_back_to_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack);
std::map<std::string, int64_t> fallback_counts();
void reset_fallback_counts();
FallbackMode fallback_mode();
void set_fallback_mode(FallbackMode mode);

} // namespace torus
