// Ops without a lowering run on the CPU: warned about once each, counted, and forbidden on request.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <map>
#include <string>

namespace torus {

enum class FallbackMode : int { kWarn, kSilent, kError };

// Ops whose result depends on values in its sizes, and that the device does not compute (most of those it does, see
// sized.h): they read the host on every backend, so their work is done there. They are no fallbacks: not counted, not
// warned about, not forbidden.
bool reads_host(const std::string& name);

void fall_back_to_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack);
std::map<std::string, int64_t> fallback_counts();
void reset_fallback_counts();
FallbackMode fallback_mode();
void set_fallback_mode(FallbackMode mode);

} // namespace torus
