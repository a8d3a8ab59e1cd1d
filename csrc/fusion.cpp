#include "fusion.h"

#include <torch/csrc/Exceptions.h>

#include <algorithm>

#include "dispatch.h"
#include "explanation.h"
#include "failure.h"
#include "launch.h"
#include "limit.h"
#include "place.h"
#include "plan.h"
#include "python_values.h"
#include "segments.h"

namespace torus {
namespace {

std::atomic<FuseMode> mode{FuseMode::kBackground};

const char* why_not_fused(const Fused* fused) {
  if (fuse_mode() == FuseMode::kNever) {
    return "fusing is off";
  }
  if (fused == nullptr) {
    return "recordings keep changing";
  }
  switch (fused->state) {
    case Fused::State::kNew:
      return "new";
    case Fused::State::kAsked:
      return "being made ready";
    case Fused::State::kFailed:
      return "could not be compiled";
    case Fused::State::kReady:
      return "an argument failed";
  }
  return "";
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
    auto* fused = segment.fused.get();
    const auto before = story_.programs;
    bool has_room = true;
    if (segment.nodes.empty()) {
      release(segment.begin, segment.end);
      story_.segments.emplace_back("not needed", "");
      return;
    }
    if (fused != nullptr && fuse_mode() != FuseMode::kNever) {
      ask(segment);
      const bool runs = fused->state == Fused::State::kReady && error_of(segment.inputs) == nullptr;
      has_room = !runs || make_room(trace_.device, fused->extra_bytes);
      if (runs && has_room && run_fused(segment)) {
        story_.segments.emplace_back("fused", "");
        return;
      }
    }
    run_nodes(segment.begin, segment.end);
    const bool single = segment.nodes.size() == 1 && story_.programs - before == 1;
    const auto* why = has_room ? why_not_fused(fused) : "no room for it in memory";
    story_.segments.emplace_back(single ? "one program" : "op by op", single ? "" : why);
  }

 private:
  // Asks Python for the program: from disk when the segment is new, compiled when it has come again.
  void ask(const Segment& segment) {
    auto* fused = segment.fused.get();
    const auto how = fuse_mode();
    if (fused->state != Fused::State::kNew) {
      return;
    }
    const bool compile = how == FuseMode::kForeground || ++fused->seen > 1;
    if (compile) {
      fused->state = Fused::State::kAsked;
    }
    const auto id = py_int(static_cast<int64_t>(fused->id));
    const auto description = describe_segment(segment);
    const auto wish = py_text(!compile ? "find" : how == FuseMode::kForeground ? "wait" : "compile");
    const bool told = tell_seam("fuse", {id.get(), description.get(), wish.get()}); // calls fused_ready
    if (!told && fused->state == Fused::State::kAsked) {
      fused->state = Fused::State::kNew;
    }
  }

  // (nodes: [(recipe, inputs, first word, words)], results wanted, arguments given up, words, device), numbers as in
  // the key of the program.
  PyRef describe_segment(const Segment& segment) {
    const auto ints = [](const std::vector<int32_t>& numbers) {
      return py_ints(std::vector<int64_t>(numbers.begin(), numbers.end()));
    };
    const auto first_word = trace_.nodes[segment.begin].first_word;
    PyListBuilder nodes;
    for (const auto& member : segment.nodes) {
      const auto& node = trace_.nodes[member.number];
      nodes.add(py_tuple(owned(node.entry->recipe.get()), ints(member.inputs), py_int(node.first_word - first_word),
                         py_int(trace_.end_of_words(member.number) - node.first_word)));
    }
    return py_tuple(nodes.finish(), ints(segment.output_numbers), ints(segment.donated),
                    py_int(trace_.end_of_words(segment.end - 1) - first_word), py_int(trace_.device));
  }

  PyObject* error_of(const std::vector<int32_t>& inputs) const {
    for (auto input : inputs) {
      trace_.value(input)->settle();
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
      results = launch_program(fused.execute.get(), fused.handlers.get(), inputs.get(), trace_.device);
    } catch (const std::exception& error) {
      fused.state = Fused::State::kFailed;
      const auto text = py_text(error.what());
      tell_seam("report_fused_failure", {text.get()});
      return false;
    }
    ++story_.programs;
    const auto doubt = doubt_of(segment, results.get());
    // What is used up goes before the results come, so that the peak of memory does not count both.
    release(segment.begin, segment.end);
    for (size_t i = 0; i < segment.outputs.size(); ++i) {
      const auto& value = trace_.results[static_cast<size_t>(segment.outputs[i])];
      const bool safe = !doubt || (*segment.guards)[i].empty();
      value->fulfill(PyList_GET_ITEM(results.get(), static_cast<Py_ssize_t>(i)), safe ? nullptr : doubt,
                     static_cast<int32_t>(i));
    }
    return true;
  }

  // The index checks of a launched segment, which nobody waits for here; null without any.
  c10::intrusive_ptr<OpenChecks> doubt_of(const Segment& segment, PyObject* results) const {
    if (!segment.guards) {
      return {};
    }
    std::vector<OpenChecks::Check> checks;
    auto report = static_cast<Py_ssize_t>(segment.outputs.size());
    for (const auto& member : segment.nodes) {
      const auto& node = trace_.nodes[member.number];
      if (auto* messages = node.entry->checks.get()) {
        const auto end = report + PyList_Size(messages);
        const auto& place = trace_.places[static_cast<size_t>(node.place)]; // always kept where indices are checked
        checks.push_back({node.entry, checked(PyList_GetSlice(results, report, end)), share(place)});
        report = end;
      }
    }
    return open_checks(std::move(checks), segment.guards);
  }

  static void load(Entry& entry) {
    try {
      load_program(entry);
    } catch (python_error& error) {
      if (!put_off_interrupt(error)) {
        throw;
      }
      load_program(entry);
    }
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
        load(*node.entry);
        auto arguments = collect(inputs, n, n + 1);
        admit(trace_.device, *node.entry);
        results = launch_program(node.entry->execute.get(), node.entry->handlers.get(), arguments.get(), trace_.device);
        ++story_.programs;
        if (node.entry->checks) {
          raise_failed_checks(*node.entry, results.get(), trace_.end_of_results(n) - node.first_result);
        }
      } catch (...) {
        error = caught(std::current_exception(), trace_, n);
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

// Results that are not wanted and never came to be go with the trace; nobody can ask for them. Where something of ours
// went wrong, those that are wanted must not stay pending for ever.
void close_values(Trace& trace, PyObject* error) {
  for (auto& value : trace.results) {
    if (value && value->pending()) {
      error != nullptr ? value->poison(error) : value->move_to(nullptr, -1);
    }
  }
  trace.nodes.clear();
  trace.results.clear();
  trace.externals.clear();
  trace.places.clear();
}

} // namespace

void run_trace(Trace& trace, Cause cause) {
  if (trace.nodes.empty()) {
    return;
  }
  counters().flushes.fetch_add(1, std::memory_order_relaxed);
  settle_open_checks(false);
  const Explanation explanation(trace);
  PyRef error;
  try {
    bool known = false;
    const auto plan = plan_of(trace, known);
    Story story;
    Runner runner(trace, *plan, story);
    for (const auto& segment : plan->segments) {
      runner.run(segment);
    }
    explanation.tell(trace, *plan, story, cause, known);
  } catch (...) {
    error = caught(std::current_exception(), trace, 0);
  }
  close_values(trace, error.get());
  deliver_interrupt();
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

void fused_ready(uint64_t id, PyObject* execute, PyObject* handlers, int64_t extra_bytes) {
  auto* fused = find_fused(id);
  if (fused == nullptr) {
    return; // the table was cleared meanwhile
  }
  fused->execute = owned(execute);
  fused->handlers = owned(handlers);
  fused->extra_bytes = extra_bytes;
  fused->state = Fused::State::kReady;
}

void fused_put_off(uint64_t id) {
  if (auto* fused = find_fused(id)) {
    fused->state = Fused::State::kAsked;
  }
}

void fused_failed(uint64_t id) {
  if (auto* fused = find_fused(id)) {
    fused->state = Fused::State::kFailed;
  }
}

} // namespace torus
