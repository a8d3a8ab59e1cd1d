// The boxed kernel: what the dispatcher calls for every op that has a rule.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/stack.h>

#include <atomic>

#include "op.h"
#include "signature.h"

namespace torus {

struct Entry;

class Kernel final : public c10::OperatorKernel {
 public:
  explicit Kernel(const OpInfo* info);
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

 private:
  const OpInfo* info_;
  // Where an absent dtype follows the written tensor; -1: nowhere.
  int dtype_arg_ = -1;
  int written_arg_ = -1;
};

// Registers the kernel of a rule for its op and for the in-place and out= forms of it; gives the names registered.
std::vector<std::string> register_rule(const RuleTraits& rule);

// Runs `info` on arguments that lie on top of the stack, and replaces them by the results.
void run(const OpInfo& info, const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Runs the program of an entry; gives its new tensors. Results that are written to an argument have been.
// `defer_checks`: failed index checks are raised later, see checks.h.
std::vector<at::Tensor> launch(Entry& entry, Signature& signature, bool defer_checks = false);

// The op behind copies between tensors of one device; see copy.cpp.
const OpInfo& copy_op();

struct Counters {
  std::atomic<int64_t> programs{0};
  std::atomic<int64_t> host_reads{0};
  std::atomic<int64_t> host_writes{0};
  std::atomic<int64_t> fallbacks{0};
  std::atomic<int64_t> flushes{0};
};
Counters& counters();

// Debug mode: every op waits for its program.
void set_launch_blocking(bool value);
bool launch_blocking();

} // namespace torus
