// Where a trace is cut into fused programs: at the turns of a loop, else by size.
#pragma once

#include <utility>

#include "trace.h"

namespace torus {

// A sequence of ops that comes again and again.
struct Loop {
  size_t start = 0;
  size_t period = 0;
  size_t turns = 0;

  size_t end() const {
    return start + period * turns;
  }
};

// The loop that covers most of the nodes [begin, end) in three turns or more; without turns if there is none.
Loop find_loop(const Trace& trace, size_t begin, size_t end);

// [begin, end) of each segment. With `by_turns` a loop is cut into powers of two of turns even where it is small, so
// that loops of any length share a few programs.
std::vector<std::pair<size_t, size_t>> cut_segments(const Trace& trace, bool by_turns);

} // namespace torus
