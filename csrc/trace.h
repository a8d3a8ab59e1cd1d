// Recording: ops that have not run yet, in the order in which they were called. Guarded by the GIL.
//
// Each thread records into a trace of its own. When an op takes a pending value of another trace, the two become one,
// so that forward, backward (on autograd's thread) and the optimizer's step share a trace, and threads that share no
// data do not disturb each other.
#pragma once

#include <thread>

#include "program.h"
#include "signature.h"

namespace torus {

// Why a trace is run.
enum class Cause : uint8_t {
  kHostRead,
  kStrictOp,
  kOtherDevice,
  kSynchronize,
  kEvent,
  kBackward,
  kSize,
  kExit,
  kFallback
};
constexpr const char* kCauseNames[] = {
    "host read", "op outside the trace", "copy to another device", "synchronize", "event", "end of backward", "size",
    "exit",      "op on the CPU"};

// The line of the user's program that recorded an op.
struct Place {
  PyRef code;
  int line = 0;
};

struct Node {
  Entry* entry;
  int32_t first_input;
  int32_t first_result;
  int32_t first_word;
  int32_t place; // -1: not kept
};

class Trace : public c10::intrusive_ptr_target {
 public:
  enum class State : uint8_t { kOpen, kRunning, kDone };

  Trace(c10::DeviceIndex device, uint64_t number) : device(device), number(number) {}

  const c10::DeviceIndex device;
  // Traces begun earlier have smaller numbers.
  const uint64_t number;
  State state = State::kOpen;
  // The trace that this one became part of.
  c10::intrusive_ptr<Trace> merged_into;
  std::thread::id runner;

  std::vector<Node> nodes;
  // Results of earlier nodes, by their number; or ~i for external value i.
  std::vector<int32_t> inputs;
  std::vector<ValuePtr> results;
  std::vector<ValuePtr> externals;
  std::vector<uint32_t> words;
  std::vector<Place> places;
  int64_t cost = 0;
  // Bytes of the external values added since waiting_bytes() was last asked for.
  int64_t added_bytes = 0;
  // The backward pass that recorded last; -1: none.
  int backward = -1;

  int32_t end_of_inputs(size_t node) const {
    return node + 1 < nodes.size() ? nodes[node + 1].first_input : static_cast<int32_t>(inputs.size());
  }
  int32_t end_of_results(size_t node) const {
    return node + 1 < nodes.size() ? nodes[node + 1].first_result : static_cast<int32_t>(results.size());
  }
  int32_t end_of_words(size_t node) const {
    return node + 1 < nodes.size() ? nodes[node + 1].first_word : static_cast<int32_t>(words.size());
  }
  // The value behind an input.
  const ValuePtr& value(int32_t input) const {
    return input >= 0 ? results[static_cast<size_t>(input)] : externals[static_cast<size_t>(~input)];
  }

  // Memory that lives only because this trace has not run.
  int64_t waiting_bytes() const;

  void add(Entry& entry, const Signature& signature);
  // Appends what `other` has recorded.
  void absorb(Trace& other);
  // Moves the nodes from number `node` on to `rest`.
  void split(size_t node, Trace& rest);

 private:
  int32_t external(const ValuePtr& value);
};

using TracePtr = c10::intrusive_ptr<Trace>;

// Whether this process records ops.
bool recording();
void set_recording(bool value);
// Whether each node keeps the line that recorded it; nodes whose indices are checked always do.
void set_keep_places(bool value);

// Records a call; gives its new tensors. Raises what an argument failed with.
std::vector<at::Tensor> record(Entry& entry, Signature& signature);

// Runs what was recorded for a device, by any thread; -1: for all devices.
void flush_all(Cause cause, c10::DeviceIndex device = -1);
// The open trace of this thread on a device, if it has recorded anything.
TracePtr current_trace(c10::DeviceIndex device);

// Says why pending values are asked for while it lives.
class CauseScope {
 public:
  explicit CauseScope(Cause cause);
  ~CauseScope();
  CauseScope(const CauseScope&) = delete;
  CauseScope& operator=(const CauseScope&) = delete;

 private:
  Cause previous_;
};

} // namespace torus
