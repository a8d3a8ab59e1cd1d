#include "plan.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "failure.h"
#include "fusion.h"
#include "launch.h"
#include "segments.h"

namespace torus {
namespace {

constexpr size_t kMostPlans = 4096;
// Smaller arguments are not worth a program of their own for being used up.
constexpr int64_t kSmallestDonation = 4096;
// So many new traces, less a quarter of those that are known, are a storm, which pauses fusing for so many traces.
constexpr int kNewTrace = 4;
constexpr int kStorm = 64 * kNewTrace;
constexpr int kPause = 512;
// Loops that came with more lengths than this are cut by turns.
constexpr size_t kLoopLengths = 3;

using Words = std::vector<int32_t>;

struct WordsHash {
  size_t operator()(const Words& words) const {
    uint64_t h = words.size();
    for (auto word : words) {
      h = (h ^ static_cast<uint32_t>(word)) * 0x9E3779B97F4A7C15ULL;
      h ^= h >> 29;
    }
    return h;
  }
};

struct Tables {
  std::unordered_map<Words, std::shared_ptr<Plan>, WordsHash> plans;
  std::unordered_map<Words, std::shared_ptr<Fused>, WordsHash> fused;
  std::unordered_map<uint64_t, Fused*> by_id;
  // The turns that each loop, known by the ops of its body, has come with.
  std::unordered_map<Words, std::unordered_set<size_t>, WordsHash> turns;
  uint64_t next_id = 1;
};

// Guarded by the GIL.
Tables& tables() {
  static auto* t = new Tables();
  return *t;
}

// New traces in a row, and what tells them apart.
struct Storm {
  int streak = 0;
  int pause = 0;
  bool reported = false;
  Words ops;
  std::vector<const OpInfo*> names;
};

Storm& storm() {
  static auto* s = new Storm();
  return *s;
}

bool is_unique(const Value& value) {
  if (!value.ready() || value.layout()->nbytes() < kSmallestDonation) {
    return false;
  }
  auto* array = value.array_in_doubt();
  return Py_REFCNT(array) - (last_launched(value.device()) == array ? 1 : 0) == 1;
}

// Who beside the trace holds its values. Asked once for each run: values may die at any time, on any thread.
struct Holders {
  explicit Holders(const Trace& trace) {
    wanted.reserve(trace.results.size());
    for (const auto& value : trace.results) {
      wanted.push_back(value.use_count() > 1);
    }
    for (const auto& value : trace.externals) {
      unique.push_back(value.use_count() == 1 && is_unique(*value));
    }
  }

  std::vector<bool> wanted; // results that somebody else holds
  std::vector<bool> unique; // external values that nobody else holds
};

Words key_of(const Trace& trace, const Holders& holders) {
  Words key;
  key.reserve(trace.nodes.size() + trace.inputs.size() + (trace.results.size() + trace.externals.size()) / 32 + 4);
  for (const auto& node : trace.nodes) {
    key.push_back(static_cast<int32_t>(node.entry->id));
  }
  key.insert(key.end(), trace.inputs.begin(), trace.inputs.end());
  uint32_t bits = 0;
  int count = 0;
  for (const auto* flags : {&holders.wanted, &holders.unique}) {
    for (const bool flag : *flags) {
      bits = bits << 1 | static_cast<uint32_t>(flag);
      if (++count % 32 == 0) {
        key.push_back(static_cast<int32_t>(std::exchange(bits, 0)));
      }
    }
  }
  key.push_back(static_cast<int32_t>(bits));
  key.push_back(static_cast<int32_t>(trace.results.size()));
  return key;
}

void find_last_uses(const Trace& trace, Plan& plan) {
  plan.last_use_of_result.resize(trace.results.size());
  plan.last_use_of_external.resize(trace.externals.size(), -1);
  for (size_t n = 0; n < trace.nodes.size(); ++n) {
    for (auto j = trace.nodes[n].first_result; j < trace.end_of_results(n); ++j) {
      plan.last_use_of_result[static_cast<size_t>(j)] = static_cast<int32_t>(n);
    }
    for (auto j = trace.nodes[n].first_input; plan.needed[n] && j < trace.end_of_inputs(n); ++j) {
      const auto input = trace.inputs[static_cast<size_t>(j)];
      (input >= 0 ? plan.last_use_of_result[static_cast<size_t>(input)]
                  : plan.last_use_of_external[static_cast<size_t>(~input)]) = static_cast<int32_t>(n);
    }
  }
}

void find_needed_nodes(const Trace& trace, Plan& plan) {
  auto used = plan.wanted;
  plan.needed.resize(trace.nodes.size());
  for (size_t n = trace.nodes.size(); n-- > 0;) {
    bool needed = static_cast<bool>(trace.nodes[n].entry->checks);
    for (auto j = trace.nodes[n].first_result; j < trace.end_of_results(n); ++j) {
      needed = needed || used[static_cast<size_t>(j)];
    }
    plan.needed[n] = needed;
    for (auto j = trace.nodes[n].first_input; needed && j < trace.end_of_inputs(n); ++j) {
      const auto input = trace.inputs[static_cast<size_t>(j)];
      if (input >= 0) {
        used[static_cast<size_t>(input)] = true;
      }
    }
  }
}

// For each result of a segment, which of its nodes with checks it depends on, counted from 0; null without any.
std::shared_ptr<const Guards> find_guards(const Trace& trace, const Segment& segment) {
  Guards known;
  int32_t count = 0;
  for (const auto& [number, inputs] : segment.nodes) {
    std::vector<int32_t> found;
    for (auto input : inputs) {
      if (input >= 0) {
        std::vector<int32_t> both;
        const auto& more = known[static_cast<size_t>(input)];
        std::set_union(found.begin(), found.end(), more.begin(), more.end(), std::back_inserter(both));
        found = std::move(both);
      }
    }
    if (trace.nodes[number].entry->checks) {
      found.push_back(count++);
    }
    known.insert(known.end(), static_cast<size_t>(trace.end_of_results(number) - trace.nodes[number].first_result),
                 found);
  }
  if (count == 0) {
    return nullptr;
  }
  auto guards = std::make_shared<Guards>();
  for (auto output : segment.output_numbers) {
    guards->push_back(known[static_cast<size_t>(output)]);
  }
  return guards;
}

// Fills in the nodes, arguments and results of a segment; gives its key, in which values have numbers of the segment.
Words describe_segment(const Trace& trace, const Plan& plan, const Holders& holders, Segment& segment) {
  Words key;
  std::unordered_map<int32_t, int32_t> arguments;
  std::unordered_map<int32_t, int32_t> results;
  const auto first_word = trace.nodes[segment.begin].first_word;
  for (size_t n = segment.begin; n < segment.end; ++n) {
    const auto& node = trace.nodes[n];
    if (!plan.needed[n]) {
      continue;
    }
    segment.nodes.push_back({n, {}});
    key.push_back(static_cast<int32_t>(node.entry->id));
    // Scalars of ops that nobody needs lie between those of the others.
    key.push_back(node.entry->takes_pack ? node.first_word - first_word : -1);
    for (auto j = node.first_input; j < trace.end_of_inputs(n); ++j) {
      const auto input = trace.inputs[static_cast<size_t>(j)];
      const auto inside = results.find(input);
      auto number = inside != results.end() ? inside->second : 0;
      if (inside == results.end()) {
        const auto [place, fresh] = arguments.emplace(input, static_cast<int32_t>(segment.inputs.size()));
        if (fresh) {
          segment.inputs.push_back(input);
        }
        number = ~place->second;
      }
      segment.nodes.back().inputs.push_back(number);
      key.push_back(number);
    }
    for (auto j = node.first_result; j < trace.end_of_results(n); ++j) {
      results.emplace(j, static_cast<int32_t>(results.size()));
    }
  }
  const auto end = static_cast<int32_t>(segment.end);
  key.push_back(trace.end_of_words(segment.end - 1) - first_word);
  key.push_back(-1);
  for (const auto& node : segment.nodes) {
    for (auto i = trace.nodes[node.number].first_result; i < trace.end_of_results(node.number); ++i) {
      if (plan.wanted[static_cast<size_t>(i)] || plan.last_use_of_result[static_cast<size_t>(i)] >= end) {
        segment.outputs.push_back(i);
        segment.output_numbers.push_back(results.at(i));
        key.push_back(results.at(i));
      }
    }
  }
  key.push_back(-1);
  for (size_t i = 0; i < segment.inputs.size(); ++i) {
    const auto input = segment.inputs[i];
    const auto place = static_cast<size_t>(input >= 0 ? input : ~input);
    const bool last = (input >= 0 ? plan.last_use_of_result : plan.last_use_of_external)[place] < end;
    const bool ours = input < 0 ? holders.unique[place]
                                : !plan.wanted[place] && trace.value(input)->layout()->nbytes() >= kSmallestDonation;
    if (last && ours) {
      segment.donated.push_back(static_cast<int32_t>(i));
      key.push_back(static_cast<int32_t>(i));
    }
  }
  return key;
}

std::shared_ptr<Fused> fused_for(const Words& key) {
  auto& t = tables();
  auto& row = t.fused[key];
  if (!row) {
    row = std::make_shared<Fused>();
    row->id = t.next_id++;
    t.by_id[row->id] = row.get();
  }
  return row;
}

// Whether this trace's loop comes with ever other lengths.
bool changes_length(const Trace& trace) {
  const auto loop = find_loop(trace, 0, trace.nodes.size());
  if (loop.turns == 0) {
    return false;
  }
  Words body;
  for (size_t i = loop.start; i < loop.start + loop.period; ++i) {
    body.push_back(static_cast<int32_t>(trace.nodes[i].entry->id));
  }
  auto& turns = tables().turns[body];
  if (turns.size() <= kLoopLengths) {
    turns.insert(loop.turns);
  }
  return turns.size() > kLoopLengths;
}

std::string difference(const Storm& last, const Words& ops, const std::vector<const OpInfo*>& names) {
  if (ops == last.ops) {
    return "the same operators each time, but other results of theirs are kept";
  }
  if (names == last.names) {
    return "the same operators each time, but with other shapes, dtypes or static arguments";
  }
  return "other operators, or another number of them, each time";
}

// True while fusing pauses.
bool note_new_trace(const Trace& trace) {
  auto& s = storm();
  Words ops;
  std::vector<const OpInfo*> names;
  for (const auto& node : trace.nodes) {
    ops.push_back(static_cast<int32_t>(node.entry->id));
    names.push_back(node.entry->op);
  }
  if ((s.streak += kNewTrace) >= kStorm) {
    s.streak = 0;
    s.pause = kPause;
    if (!std::exchange(s.reported, true)) {
      const auto text = difference(s, ops, names);
      const PyRef message(PyUnicode_FromString(text.c_str()));
      tell_seam("report_storm", {message.get()});
    }
  }
  s.ops = std::move(ops);
  s.names = std::move(names);
  return s.pause > 0;
}

} // namespace

std::shared_ptr<Plan> plan_of(const Trace& trace, bool& known) {
  Holders holders(trace);
  auto key = key_of(trace, holders);
  auto& t = tables();
  const auto found = t.plans.find(key);
  known = found != t.plans.end();
  if (known) {
    storm().streak = std::max(0, storm().streak - 1);
    return found->second;
  }
  auto plan = std::make_shared<Plan>();
  plan->wanted = std::move(holders.wanted);
  find_needed_nodes(trace, *plan);
  find_last_uses(trace, *plan);
  bool all_ready = true;
  for (const auto& [begin, end] : cut_segments(trace, changes_length(trace))) {
    Segment segment;
    segment.begin = begin;
    segment.end = end;
    auto words = describe_segment(trace, *plan, holders, segment);
    if (segment.nodes.size() > 1 && storm().pause == 0) {
      segment.fused = fused_for(words);
      segment.guards = find_guards(trace, segment);
      all_ready = all_ready && segment.fused->state == Fused::State::kReady;
    }
    plan->segments.push_back(std::move(segment));
  }
  if (storm().pause > 0) {
    --storm().pause;
    return plan;
  }
  if (!all_ready && fuse_mode() != FuseMode::kNever && note_new_trace(trace)) {
    return plan;
  }
  if (t.plans.size() >= kMostPlans) {
    clear_plans();
    return plan; // its programs are of the old table
  }
  t.plans.emplace(std::move(key), plan);
  return plan;
}

Fused* find_fused(uint64_t id) {
  const auto found = tables().by_id.find(id);
  return found == tables().by_id.end() ? nullptr : found->second;
}

void end_storm() {
  storm().streak = storm().pause = 0;
}

void clear_plans() {
  auto& t = tables();
  end_storm();
  t.plans.clear();
  t.turns.clear();
  t.by_id.clear();
  t.fused.clear();
}

size_t plan_count() {
  return tables().plans.size();
}

} // namespace torus
