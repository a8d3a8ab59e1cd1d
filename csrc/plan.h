// The plan of a trace: which segments it has, and which fused program each of them is.
#pragma once

#include <memory>

#include "open_checks.h"
#include "trace.h"

namespace torus {

// A program of several ops. Programs are keyed on structure: ops, wiring, results wanted, arguments to be used up.
struct Fused {
  enum class State : uint8_t { kNew, kAsked, kReady, kFailed };

  uint64_t id;
  State state = State::kNew;
  int64_t seen = 0;
  PyRef execute;
  PyRef handlers;
  int64_t extra_bytes = 0;
};

// Numbers of values are those of the trace: results, or ~i for external value i.
struct Segment {
  // A node that is needed, and its inputs by their numbers in the segment: results, or ~i for argument i.
  struct Member {
    size_t number;
    std::vector<int32_t> inputs;
  };

  size_t begin = 0;
  size_t end = 0;
  std::shared_ptr<Fused> fused; // none for a single op
  std::vector<Member> nodes;
  std::vector<int32_t> inputs;
  std::vector<int32_t> outputs;
  std::vector<int32_t> output_numbers; // those of the segment
  std::vector<int32_t> donated;        // places in `inputs`
  std::shared_ptr<const Guards> guards;
};

struct Plan {
  std::vector<Segment> segments;
  // The node that uses each result or external value last; the node that makes it where none does.
  std::vector<int32_t> last_use_of_result;
  std::vector<int32_t> last_use_of_external;
  std::vector<bool> wanted; // results that somebody beside the trace holds
  std::vector<bool> needed; // nodes that a wanted result or an index check depends on
};

// The plan of a closed trace. `known`: it has come before. While traces keep changing, plans are not kept and have no
// fused programs.
std::shared_ptr<Plan> plan_of(const Trace& trace, bool& known);

Fused* find_fused(uint64_t id);
void clear_plans();
// Fusing goes on at once where it pauses.
void end_storm();
size_t plan_count();

} // namespace torus
