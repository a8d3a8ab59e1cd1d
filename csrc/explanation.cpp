#include "explanation.h"

#include <chrono>

#include "failure.h"
#include "place.h"
#include "python_values.h"

namespace torus {
namespace {

std::atomic<bool> is_explaining{false};

// (name of the op, line that recorded it, its results as (dtype, sizes)) of the nodes [begin, end).
PyRef describe_nodes(const Trace& trace, size_t begin, size_t end) {
  PyListBuilder list;
  for (size_t n = begin; n < end; ++n) {
    const auto& node = trace.nodes[n];
    PyListBuilder results;
    for (const auto& result : node.entry->results) {
      if (!result.none) {
        results.add(py_tuple(py_dtype(result.dtype), py_ints(result.sizes)));
      }
    }
    list.add(py_tuple(py_text(node.entry->op->name),
                      py_text(node.place < 0 ? "" : describe(trace.places[static_cast<size_t>(node.place)])),
                      results.finish()));
  }
  return list.finish();
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int64_t bytes_of(const std::vector<ValuePtr>& values) {
  int64_t sum = 0;
  for (const auto& value : values) {
    sum += value ? value->layout()->nbytes() : 0;
  }
  return sum;
}

} // namespace

Explanation::Explanation(const Trace& trace) : active_(is_explaining.load(std::memory_order_relaxed)) {
  if (active_) {
    start_ = now_ns();
    bytes_in_ = bytes_of(trace.externals);
  }
}

void Explanation::tell(const Trace& trace, const Plan& plan, const Story& story, Cause cause, bool known) const {
  if (!active_) {
    return;
  }
  PyListBuilder segments;
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    const auto& segment = plan.segments[i];
    segments.add(py_tuple(describe_nodes(trace, segment.begin, segment.end), py_text(story.segments[i].first),
                          py_text(story.segments[i].second)));
  }
  int64_t bytes_out = 0;
  for (size_t i = 0; i < trace.results.size(); ++i) {
    bytes_out += plan.wanted[i] ? trace.results[i]->layout()->nbytes() : 0;
  }
  auto event = py_tuple(py_text(kCauseNames[static_cast<size_t>(cause)]), py_text(describe(current_place())),
                        segments.finish(), py_int(story.programs), PyRef(PyBool_FromLong(known)), py_int(bytes_in_),
                        py_int(bytes_out), py_int(start_), py_int(now_ns()));
  tell_seam("flushed", {event.get()});
}

void set_explaining(bool value) {
  is_explaining.store(value);
  set_keep_places(value);
}

PyRef describe_pending(const Value& value) {
  if (!value.pending() || value.trace()->state != Trace::State::kOpen) {
    return none();
  }
  const auto& trace = *value.trace();
  PyListBuilder nodes;
  for (size_t n = 0; n < trace.nodes.size(); ++n) {
    const auto& node = trace.nodes[n];
    std::vector<int64_t> inputs(trace.inputs.begin() + node.first_input, trace.inputs.begin() + trace.end_of_inputs(n));
    nodes.add(py_tuple(owned(node.entry->recipe.get()), py_ints(inputs),
                       py_int(trace.end_of_words(n) - node.first_word), py_int(node.first_result),
                       py_text(node.entry->op->name),
                       py_text(node.place < 0 ? "" : describe(trace.places[static_cast<size_t>(node.place)]))));
  }
  return py_tuple(nodes.finish(), py_int(value.slot()), py_int(trace.device));
}

} // namespace torus
