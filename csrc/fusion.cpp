#include "fusion.h"

#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <chrono>

#include "dispatch.h"
#include "launch.h"
#include "place.h"
#include "plan.h"
#include "python_values.h"
#include "segments.h"

namespace torus {
namespace {

std::atomic<FuseMode> mode{FuseMode::kBackground};
std::atomic<bool> is_explaining{false};

PyRef& unreported() {
  static auto* failure = new PyRef();
  return *failure;
}

// What happened while a trace ran, for the report.
struct Story {
  int64_t programs = 0;
  std::vector<const char*> how; // of each segment
};

// The exception in flight as a Python object that names the op and the line that recorded it.
PyRef caught(const Trace& trace, size_t node) {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  try {
    throw;
  } catch (python_error& error) {
    error.restore();
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
  } catch (const std::exception& error) {
    value = PyObject_CallFunction(PyExc_RuntimeError, "s", error.what());
  }
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  auto result = checked(value);
  const auto& n = trace.nodes[node];
  auto note = "by " + n.entry->op->name;
  if (n.place >= 0) {
    const auto line = describe(trace.places[static_cast<size_t>(n.place)]);
    note += line.empty() ? ", recorded by autograd" : ", recorded at " + line;
  }
  PyRef ignored(PyObject_CallMethod(result.get(), "add_note", "s", note.c_str()));
  PyErr_Clear();
  return result;
}

void fail(const ValuePtr& value, PyObject* error) {
  if (value) {
    value->poison(error);
  }
}

class Runner {
 public:
  Runner(Trace& trace, const Plan& plan, Story& story) : trace_(trace), plan_(plan), story_(story) {}

  void run(const Segment& segment) {
    auto* fused = segment.fused;
    const auto before = story_.programs;
    const auto needed = plan_.needed.begin();
    const auto first = needed + static_cast<ptrdiff_t>(segment.begin);
    if (std::find(first, needed + static_cast<ptrdiff_t>(segment.end), true) ==
        needed + static_cast<ptrdiff_t>(segment.end)) {
      release(segment.begin, segment.end);
      story_.how.push_back("not needed");
      return;
    }
    if (fused != nullptr) {
      ++fused->seen;
      ask(segment);
      if (fused->state == Fused::State::kReady && error_of(segment.inputs) == nullptr && run_fused(segment)) {
        story_.how.push_back("fused");
        return;
      }
    }
    run_nodes(segment.begin, segment.end);
    story_.how.push_back(fused == nullptr && story_.programs - before == 1 ? "one program" : "op by op");
  }

 private:
  // Asks Python for the program: from disk when the segment is new, compiled when it has come again.
  void ask(const Segment& segment) {
    auto* fused = segment.fused;
    const auto how = fuse_mode();
    if (fused->state != Fused::State::kNew || how == FuseMode::kNever || fused->seen > 2) {
      return;
    }
    const bool compile = how == FuseMode::kForeground || fused->seen > 1;
    if (compile) {
      fused->state = Fused::State::kAsked;
    }
    const auto id = py_int(static_cast<int64_t>(fused->id));
    const auto description = describe_segment(segment);
    const auto wish = py_text(!compile ? "find" : how == FuseMode::kForeground ? "wait" : "compile");
    call_seam("fuse", {id.get(), description.get(), wish.get()}); // calls fused_ready
  }

  // (nodes: [(recipe, inputs, words)], results wanted, arguments given up), numbers as in the key of the program.
  PyRef describe_segment(const Segment& segment) {
    const auto first_result = trace_.nodes[segment.begin].first_result;
    PyListBuilder nodes;
    for (size_t n = segment.begin; n < segment.end; ++n) {
      std::vector<int64_t> inputs;
      for (auto j = trace_.nodes[n].first_input; j < trace_.end_of_inputs(n); ++j) {
        const auto input = trace_.inputs[static_cast<size_t>(j)];
        const auto place = std::find(segment.inputs.begin(), segment.inputs.end(), input) - segment.inputs.begin();
        inputs.push_back(input >= first_result ? input - first_result : ~place);
      }
      const auto words = trace_.end_of_words(n) - trace_.nodes[n].first_word;
      nodes.add(py_tuple(owned(trace_.nodes[n].entry->recipe.get()), py_ints(inputs), py_int(words)));
    }
    std::vector<int64_t> outputs;
    for (auto output : segment.outputs) {
      outputs.push_back(output - first_result);
    }
    const std::vector<int64_t> donated(segment.donated.begin(), segment.donated.end());
    return py_tuple(nodes.finish(), py_ints(outputs), py_ints(donated), py_int(trace_.device));
  }

  PyObject* error_of(const std::vector<int32_t>& inputs) const {
    for (auto input : inputs) {
      if (auto* error = trace_.value(input)->error()) {
        return error;
      }
    }
    return nullptr;
  }

  PyRef pack(size_t begin, size_t end) const {
    const auto first = static_cast<size_t>(trace_.nodes[begin].first_word);
    const auto count = static_cast<size_t>(trace_.end_of_words(end - 1)) - first;
    return upload_pack({trace_.words.data() + first, count}, trace_.device, true);
  }

  PyRef collect(const std::vector<int32_t>& inputs, size_t begin, size_t end) const {
    PyListBuilder list;
    for (auto input : inputs) {
      list.add(owned(trace_.value(input)->array()));
    }
    if (trace_.end_of_words(end - 1) > trace_.nodes[begin].first_word) {
      list.add(pack(begin, end));
    }
    return list.finish();
  }

  bool run_fused(const Segment& segment) {
    auto& fused = *segment.fused;
    PyRef results;
    try {
      auto inputs = collect(segment.inputs, segment.begin, segment.end);
      for (auto place : segment.donated) {
        forget_launched(trace_.device, PyList_GET_ITEM(inputs.get(), place));
      }
      account_temporary(trace_.device, fused.temporary_bytes);
      results = launch_program(fused.execute.get(), fused.handlers.get(), inputs.get(), trace_.device);
    } catch (const std::exception& error) {
      fused.state = Fused::State::kFailed;
      const auto text = py_text(error.what());
      call_seam("report_fused_failure", {text.get()});
      return false;
    }
    ++story_.programs;
    const auto failed = check(segment, results.get());
    // What is used up goes before the results come, so that the peak of memory does not count both.
    release(segment.begin, segment.end);
    for (size_t i = 0; i < segment.outputs.size(); ++i) {
      const auto output = static_cast<size_t>(segment.outputs[i]);
      const auto& value = trace_.results[output];
      if (auto* error = failed.empty() ? nullptr : failed[output - first_result(segment)].get()) {
        fail(value, error);
      } else {
        value->fulfill(PyList_GET_ITEM(results.get(), static_cast<Py_ssize_t>(i)));
      }
    }
    return true;
  }

  size_t first_result(const Segment& segment) const {
    return static_cast<size_t>(trace_.nodes[segment.begin].first_result);
  }

  // The failure of each result that depends on an index check that failed; empty when none did.
  std::vector<PyRef> check(const Segment& segment, PyObject* results) {
    std::vector<PyRef> failed;
    const auto first = first_result(segment);
    auto report = static_cast<Py_ssize_t>(segment.outputs.size());
    for (size_t n = segment.begin; n < segment.end; ++n) {
      auto& entry = *trace_.nodes[n].entry;
      PyRef error;
      if (entry.checks) {
        try {
          raise_failed_checks(entry, results, report);
        } catch (...) {
          error = caught(trace_, n);
          note_failure(error.get());
          failed.resize(static_cast<size_t>(trace_.end_of_results(segment.end - 1)) - first);
        }
        report += PyList_Size(entry.checks.get());
      }
      if (failed.empty()) {
        continue;
      }
      for (auto j = trace_.nodes[n].first_input; !error && j < trace_.end_of_inputs(n); ++j) {
        const auto input = trace_.inputs[static_cast<size_t>(j)];
        if (input >= static_cast<int32_t>(first) && failed[static_cast<size_t>(input) - first]) {
          error = owned(failed[static_cast<size_t>(input) - first].get());
        }
      }
      for (auto j = trace_.nodes[n].first_result; error && j < trace_.end_of_results(n); ++j) {
        failed[static_cast<size_t>(j) - first] = owned(error.get());
      }
    }
    return failed;
  }

  static void note_failure(PyObject* error) {
    unreported() = owned(error);
  }

  void run_nodes(size_t begin, size_t end) {
    for (size_t n = begin; n < end; ++n) {
      if (plan_.needed[n]) {
        run_node(n);
      }
      release(n, n + 1);
    }
  }

  void run_node(size_t n) {
    auto& node = trace_.nodes[n];
    const std::vector<int32_t> inputs(trace_.inputs.begin() + node.first_input,
                                      trace_.inputs.begin() + trace_.end_of_inputs(n));
    PyRef error;
    PyRef results;
    if (auto* earlier = error_of(inputs)) {
      error = owned(earlier);
    } else {
      try {
        load_program(*node.entry);
        auto arguments = collect(inputs, n, n + 1);
        results = launch_program(node.entry->execute.get(), node.entry->handlers.get(), arguments.get(), trace_.device);
        ++story_.programs;
        if (node.entry->checks) {
          raise_failed_checks(*node.entry, results.get(), trace_.end_of_results(n) - node.first_result);
        }
      } catch (...) {
        error = caught(trace_, n);
        note_failure(error.get());
      }
    }
    for (auto j = node.first_result; j < trace_.end_of_results(n); ++j) {
      const auto& value = trace_.results[static_cast<size_t>(j)];
      error ? fail(value, error.get()) : value->fulfill(PyList_GET_ITEM(results.get(), j - node.first_result));
    }
  }

  // Lets go of what the nodes [begin, end) used last and nobody else wants.
  void release(size_t begin, size_t end) {
    const auto first = static_cast<int32_t>(begin);
    const auto last = static_cast<int32_t>(end);
    const auto within = [&](int32_t node) { return node >= first && node < last; };
    for (size_t n = begin; n < end; ++n) {
      for (auto j = trace_.nodes[n].first_input; j < trace_.end_of_inputs(n); ++j) {
        const auto input = trace_.inputs[static_cast<size_t>(j)];
        const auto place = static_cast<size_t>(input >= 0 ? input : ~input);
        if (input < 0 && within(plan_.last_use_of_external[place])) {
          trace_.externals[place].reset();
        } else if (input >= 0 && within(plan_.last_use_of_result[place]) && !plan_.wanted[place] &&
                   input < trace_.nodes[begin].first_result) {
          trace_.results[place].reset();
        }
      }
    }
    if (end - begin > 1) {
      return; // results inside of a fused program never came to be
    }
    for (auto j = trace_.nodes[begin].first_result; j < trace_.end_of_results(begin); ++j) {
      const auto place = static_cast<size_t>(j);
      if (plan_.last_use_of_result[place] == first && !plan_.wanted[place]) {
        trace_.results[place].reset();
      }
    }
  }

  Trace& trace_;
  const Plan& plan_;
  Story& story_;
};

// (number, name of the op, line that recorded it) of the nodes [begin, end).
PyRef describe_nodes(const Trace& trace, size_t begin, size_t end) {
  PyListBuilder list;
  for (size_t n = begin; n < end; ++n) {
    const auto place = trace.nodes[n].place;
    list.add(py_tuple(py_text(trace.nodes[n].entry->op->name),
                      py_text(place < 0 ? "" : describe(trace.places[static_cast<size_t>(place)]))));
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

void run_trace(Trace& trace, Cause cause) {
  if (trace.nodes.empty()) {
    return;
  }
  counters().flushes.fetch_add(1, std::memory_order_relaxed);
  const bool explaining = is_explaining.load(std::memory_order_relaxed);
  const auto start = now_ns();
  const auto bytes_in = explaining ? bytes_of(trace.externals) : 0;
  bool known = false;
  const auto plan = plan_of(trace, known);
  Story story;
  Runner runner(trace, *plan, story);
  for (const auto& segment : plan->segments) {
    runner.run(segment);
  }
  if (explaining) {
    PyListBuilder segments;
    for (size_t i = 0; i < plan->segments.size(); ++i) {
      const auto& segment = plan->segments[i];
      segments.add(py_tuple(describe_nodes(trace, segment.begin, segment.end), py_text(story.how[i])));
    }
    int64_t bytes_out = 0;
    for (size_t i = 0; i < trace.results.size(); ++i) {
      bytes_out += plan->wanted[i] ? trace.results[i]->layout()->nbytes() : 0;
    }
    auto event = py_tuple(py_text(kCauseNames[static_cast<size_t>(cause)]), py_text(describe(current_place())),
                          segments.finish(), py_int(story.programs), PyRef(PyBool_FromLong(known)), py_int(bytes_in),
                          py_int(bytes_out), py_int(start), py_int(now_ns()));
    call_seam("flushed", {event.get()});
  }
  // Results that are not wanted and never came to be go with the trace; nobody can ask for them.
  for (auto& value : trace.results) {
    if (value && value->pending()) {
      value->move_to(nullptr, -1);
    }
  }
  trace.nodes.clear();
  trace.results.clear();
  trace.externals.clear();
  trace.places.clear();
}

size_t stable_end(const Trace& trace) {
  const auto count = trace.nodes.size();
  const auto loop = find_loop(trace, 0, count);
  return loop.turns > 0 && loop.end() + loop.period > count ? loop.end() : count;
}

void set_fuse_mode(FuseMode value) {
  mode.store(value);
}

FuseMode fuse_mode() {
  return mode.load();
}

void fused_ready(uint64_t id, PyObject* execute, PyObject* handlers, int64_t temporary_bytes) {
  auto* fused = find_fused(id);
  if (fused == nullptr) {
    return; // the table was cleared meanwhile
  }
  fused->execute = owned(execute);
  fused->handlers = owned(handlers);
  fused->temporary_bytes = temporary_bytes;
  fused->state = Fused::State::kReady;
}

void fused_failed(uint64_t id) {
  if (auto* fused = find_fused(id)) {
    fused->state = Fused::State::kFailed;
  }
}

void clear_fused() {
  clear_plans();
}

void report_failure(PyObject* error) {
  if (unreported().get() == error) {
    unreported() = PyRef();
  }
}

void raise_unreported_failure() {
  auto error = std::move(unreported());
  if (error) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.get())), error.get());
    throw_python_error();
  }
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
    std::vector<int64_t> inputs(trace.inputs.begin() + node.first_input,
                                trace.inputs.begin() + trace.end_of_inputs(n));
    nodes.add(py_tuple(owned(node.entry->recipe.get()), py_ints(inputs),
                       py_int(trace.end_of_words(n) - node.first_word), py_int(node.first_result),
                       py_text(node.entry->op->name),
                       py_text(node.place < 0 ? "" : describe(trace.places[static_cast<size_t>(node.place)]))));
  }
  return py_tuple(nodes.finish(), py_int(value.slot()), py_int(trace.device));
}

} // namespace torus
