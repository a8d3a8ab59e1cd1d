#include "trace.h"

#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <array>
#include <condition_variable>

#include "failure.h"
#include "fusion.h"
#include "launch.h"
#include "origins.h"
#include "place.h"

namespace torus {
namespace {

std::atomic<bool> is_recording{false};
std::atomic<bool> keep_places{false};
uint64_t last_number = 0; // of the traces begun; guarded by the GIL
thread_local Cause current_cause = Cause::kStrictOp;
thread_local std::array<TracePtr, 128> current_traces;

// Open traces of all threads. Guarded by the GIL.
std::vector<TracePtr>& open_traces() {
  static auto* traces = new std::vector<TracePtr>();
  return *traces;
}

// Threads without the GIL wait here for a trace that another one runs.
struct Finished {
  std::mutex mutex;
  std::condition_variable changed;
};

Finished& finished() {
  static auto* f = new Finished();
  return *f;
}

void wait_for_others() {
  Py_BEGIN_ALLOW_THREADS;
  auto& f = finished();
  std::unique_lock<std::mutex> lock(f.mutex);
  // With a limit, because the end may have come before the lock was taken.
  f.changed.wait_for(lock, std::chrono::milliseconds(1));
  Py_END_ALLOW_THREADS;
}

TracePtr open_trace(c10::DeviceIndex device) {
  auto trace = c10::make_intrusive<Trace>(device, ++last_number);
  open_traces().push_back(trace);
  return trace;
}

void close(Trace& trace) {
  auto& open = open_traces();
  open.erase(std::find_if(open.begin(), open.end(), [&](const TracePtr& t) { return t.get() == &trace; }));
}

void run_closed(const TracePtr& trace, Cause cause) {
  trace->state = Trace::State::kRunning;
  trace->runner = std::this_thread::get_id();
  run_trace(*trace, cause);
  trace->state = Trace::State::kDone;
  finished().changed.notify_all();
}

void flush(TracePtr trace, Cause cause) {
  close(*trace);
  run_closed(trace, cause);
}

// Runs the trace up to a point from which on programs repeat, and leaves the rest recorded.
void cut(const TracePtr& trace) {
  const auto end = stable_end(*trace);
  if (end >= trace->nodes.size()) {
    flush(trace, Cause::kSize);
    return;
  }
  auto head = c10::make_intrusive<Trace>(trace->device, trace->number);
  head->absorb(*trace);
  head->split(end, *trace);
  run_closed(head, Cause::kSize);
}

// The value is computed when this returns, or it has failed.
void settle(Value& value) {
  while (value.pending()) {
    TracePtr trace = c10::intrusive_ptr<Trace>::reclaim_copy(value.trace());
    if (trace->state == Trace::State::kOpen) {
      flush(std::move(trace), current_cause);
      continue;
    }
    TORCH_INTERNAL_ASSERT(trace->runner != std::this_thread::get_id(), "a trace asks for its own results");
    wait_for_others();
  }
}

PyObject* materialize(Value& value) {
  const auto keep = c10::intrusive_ptr<Value>::reclaim_copy(&value);
  settle(value);
  value.settle();
  if (value.error() != nullptr) {
    report_failure(value.error());
    auto* error = value.error();
    PyException_SetTraceback(error, Py_None);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
    throw_python_error();
  }
  return value.array();
}

TracePtr& trace_of_thread(c10::DeviceIndex device) {
  auto& trace = current_traces[static_cast<size_t>(device)];
  while (trace && trace->merged_into) {
    trace = trace->merged_into;
  }
  if (!trace || trace->state != Trace::State::kOpen) {
    trace = open_trace(device);
  }
  return trace;
}

// One trace for this thread and for all pending arguments.
TracePtr join_traces(const Entry& entry, const Signature& signature) {
  auto trace = trace_of_thread(signature.device());
  for (auto index : entry.inputs) {
    auto& value = *signature.tensors()[static_cast<size_t>(index)].value;
    if (value.error() != nullptr) {
      value.array(); // raises it
    }
    if (!value.pending() || value.trace() == trace.get()) {
      continue;
    }
    if (value.trace()->state != Trace::State::kOpen) {
      settle(value);
      return join_traces(entry, signature); // other threads may have worked meanwhile
    }
    auto other = c10::intrusive_ptr<Trace>::reclaim_copy(value.trace());
    auto& older = other->number < trace->number ? other : trace;
    auto& newer = other->number < trace->number ? trace : other;
    close(*newer);
    older->absorb(*newer);
    newer->merged_into = older;
    newer->state = Trace::State::kDone;
    trace = older;
  }
  current_traces[static_cast<size_t>(signature.device())] = trace;
  return trace;
}

} // namespace

void Trace::add(Entry& entry, const Signature& signature) {
  Node node{};
  node.entry = &entry;
  node.first_input = static_cast<int32_t>(inputs.size());
  node.first_result = static_cast<int32_t>(results.size());
  node.first_word = static_cast<int32_t>(words.size());
  node.place = -1;
  for (auto index : entry.inputs) {
    const auto& value = signature.tensors()[static_cast<size_t>(index)].value;
    inputs.push_back(value->pending() ? value->slot() : ~external(value));
  }
  if (entry.takes_pack) {
    words.insert(words.end(), signature.pack().begin(), signature.pack().end());
  }
  if (entry.checks || keep_places.load(std::memory_order_relaxed) || keeping_origins()) {
    node.place = static_cast<int32_t>(places.size());
    places.push_back(current_place());
  }
  cost += entry.cost;
  nodes.push_back(node);
}

int32_t Trace::external(const ValuePtr& value) {
  const auto hint = value->external_hint;
  if (hint >= 0 && static_cast<size_t>(hint) < externals.size() && externals[static_cast<size_t>(hint)] == value) {
    return hint;
  }
  value->external_hint = static_cast<int32_t>(externals.size());
  added_bytes += value->layout()->nbytes();
  externals.push_back(value);
  return value->external_hint;
}

int64_t Trace::waiting_bytes() const {
  int64_t sum = 0;
  for (const auto& value : externals) {
    sum += value.use_count() == 1 ? value->layout()->nbytes() : 0;
  }
  return sum;
}

void Trace::absorb(Trace& other) {
  const auto first_result = static_cast<int32_t>(results.size());
  const auto first_input = static_cast<int32_t>(inputs.size());
  const auto first_word = static_cast<int32_t>(words.size());
  const auto first_place = static_cast<int32_t>(places.size());
  for (auto node : other.nodes) {
    node.first_input += first_input;
    node.first_result += first_result;
    node.first_word += first_word;
    node.place = node.place < 0 ? -1 : node.place + first_place;
    nodes.push_back(node);
  }
  for (auto input : other.inputs) {
    inputs.push_back(input >= 0 ? input + first_result : ~external(other.externals[static_cast<size_t>(~input)]));
  }
  for (auto& value : other.results) {
    value->move_to(this, static_cast<int32_t>(results.size()));
    results.push_back(std::move(value));
  }
  words.insert(words.end(), other.words.begin(), other.words.end());
  std::move(other.places.begin(), other.places.end(), std::back_inserter(places));
  cost += other.cost;
  backward = std::max(backward, other.backward);
  other.nodes.clear();
  other.inputs.clear();
  other.results.clear();
  other.externals.clear();
  other.words.clear();
  other.places.clear();
  other.cost = 0;
}

void Trace::split(size_t node, Trace& rest) {
  const auto first = nodes[node];
  for (size_t i = node; i < nodes.size(); ++i) {
    auto moved = nodes[i];
    for (auto j = moved.first_input; j < end_of_inputs(i); ++j) {
      const auto input = inputs[static_cast<size_t>(j)];
      rest.inputs.push_back(input >= first.first_result ? input - first.first_result : ~rest.external(value(input)));
    }
    if (moved.place >= 0) {
      rest.places.push_back(std::move(places[static_cast<size_t>(moved.place)]));
      moved.place = static_cast<int32_t>(rest.places.size()) - 1;
    }
    moved.first_input -= first.first_input;
    moved.first_result -= first.first_result;
    moved.first_word -= first.first_word;
    rest.cost += moved.entry->cost;
    rest.nodes.push_back(moved);
  }
  for (auto i = static_cast<size_t>(first.first_result); i < results.size(); ++i) {
    results[i]->move_to(&rest, static_cast<int32_t>(rest.results.size()));
    rest.results.push_back(std::move(results[i]));
  }
  rest.words.assign(words.begin() + first.first_word, words.end());
  rest.backward = backward;
  nodes.resize(node);
  inputs.resize(static_cast<size_t>(first.first_input));
  results.resize(static_cast<size_t>(first.first_result));
  words.resize(static_cast<size_t>(first.first_word));
  cost -= rest.cost;
}

bool recording() {
  return is_recording.load(std::memory_order_relaxed);
}

void set_recording(bool value) {
  Value::set_materializer(&materialize);
  is_recording.store(value);
}

void set_keep_places(bool value) {
  keep_places.store(value);
}

namespace {

bool is_full(Trace& trace, const Entry& entry) {
  if (trace.nodes.empty()) {
    return false;
  }
  if (trace.cost + entry.cost > kLargestTrace || trace.nodes.size() >= kMostNodes) {
    return true;
  }
  if (trace.added_bytes < kMostWaitingBytes) {
    return false;
  }
  trace.added_bytes = 0;
  return trace.waiting_bytes() >= kMostWaitingBytes;
}

} // namespace

std::vector<at::Tensor> record(Entry& entry, Signature& signature) {
  signature.draw_random_state();
  const int backward = torch::autograd::get_current_graph_task_id();
  auto trace = join_traces(entry, signature);
  if (trace->backward >= 0 && backward < 0) {
    flush(trace, Cause::kBackward);
    trace = join_traces(entry, signature);
  } else if (is_full(*trace, entry)) {
    cut(trace);
    trace = join_traces(entry, signature);
  }
  trace->backward = backward;
  trace->add(entry, signature);
  std::vector<at::Tensor> fresh;
  for (const auto& plan : entry.results) {
    if (plan.none) {
      fresh.emplace_back();
      continue;
    }
    auto value = c10::make_intrusive<Value>(trace.get(), static_cast<int32_t>(trace->results.size()), plan.layout,
                                            trace->device);
    note_origin(*value, entry.op->name.c_str());
    trace->results.push_back(value);
    if (plan.writes >= 0) {
      state_of(*signature.tensors()[static_cast<size_t>(plan.writes)].tensor).value = std::move(value);
    } else {
      fresh.push_back(make_tensor(std::move(value), plan.dtype, plan.sizes, plan.strides));
    }
  }
  return fresh;
}

void flush_all(Cause cause, c10::DeviceIndex device) {
  const auto last = last_number; // other threads may go on recording
  for (;;) {
    auto& open = open_traces();
    const auto found = std::find_if(open.begin(), open.end(), [&](const TracePtr& t) {
      return (device < 0 || t->device == device) && t->number <= last;
    });
    if (found == open.end()) {
      return;
    }
    flush(*found, cause);
  }
}

TracePtr current_trace(c10::DeviceIndex device) {
  auto trace = current_traces[static_cast<size_t>(device)];
  while (trace && trace->merged_into) {
    trace = trace->merged_into;
  }
  return trace && trace->state == Trace::State::kOpen ? trace : TracePtr();
}

CauseScope::CauseScope(Cause cause) : previous_(current_cause) {
  if (current_cause == Cause::kStrictOp) { // else an outer scope knows better: a fallback reads on the host
    current_cause = cause;
  }
}

CauseScope::~CauseScope() {
  current_cause = previous_;
}

} // namespace torus
