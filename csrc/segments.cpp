#include "segments.h"

#include <algorithm>

#include "fusion.h"

namespace torus {
namespace {

constexpr size_t kLongestPeriod = 512;

class Cutter {
 public:
  Cutter(const Trace& trace, bool by_turns) : trace_(trace), by_turns_(by_turns) {}

  std::vector<std::pair<size_t, size_t>> cut() {
    cut(0, trace_.nodes.size());
    return std::move(segments_);
  }

 private:
  int64_t cost(size_t begin, size_t end) const {
    int64_t sum = 0;
    for (size_t i = begin; i < end; ++i) {
      sum += trace_.nodes[i].entry->cost;
    }
    return sum;
  }

  void cut(size_t begin, size_t end) {
    if (begin >= end) {
      return;
    }
    const bool fits = cost(begin, end) <= kLargestSegment;
    if (fits && !by_turns_) {
      segments_.emplace_back(begin, end);
      return;
    }
    const auto loop = find_loop(trace_, begin, end);
    const auto body = loop.turns > 0 ? cost(loop.start, loop.start + loop.period) : 0;
    // A few ops that happen to come three times are no loop.
    const bool counts = 4 * loop.turns * loop.period >= end - begin;
    if (loop.turns > 0 && counts && body <= kLargestSegment) {
      cut(begin, loop.start);
      cut_turns(loop, body);
      cut(loop.end(), end);
    } else if (fits) {
      segments_.emplace_back(begin, end);
    } else {
      cut_by_size(begin, end);
    }
  }

  void cut_turns(const Loop& loop, int64_t body) {
    size_t group = 1;
    while (static_cast<int64_t>(2 * group) * body <= kLargestSegment) {
      group *= 2;
    }
    for (size_t done = 0; done < loop.turns; done += group) {
      while (group > loop.turns - done) {
        group /= 2;
      }
      const auto begin = loop.start + done * loop.period;
      segments_.emplace_back(begin, begin + group * loop.period);
    }
  }

  void cut_by_size(size_t begin, size_t end) {
    // Pieces of about one size, rather than full ones and a rest.
    const auto total = cost(begin, end);
    const auto pieces = (total + kLargestSegment - 1) / kLargestSegment;
    const auto wanted = total / pieces;
    int64_t sum = 0;
    size_t first = begin;
    for (size_t i = begin; i < end; ++i) {
      sum += trace_.nodes[i].entry->cost;
      if (sum >= wanted || i + 1 == end) {
        segments_.emplace_back(first, i + 1);
        first = i + 1;
        sum = 0;
      }
    }
  }

  const Trace& trace_;
  bool by_turns_;
  std::vector<std::pair<size_t, size_t>> segments_;
};

} // namespace

Loop find_loop(const Trace& trace, size_t begin, size_t end) {
  const auto& nodes = trace.nodes;
  Loop best;
  for (size_t period = 1; period <= std::min(kLongestPeriod, (end - begin) / 3); ++period) {
    size_t run = 0;
    for (size_t i = begin; i + period < end; ++i) {
      run = nodes[i].entry == nodes[i + period].entry ? run + 1 : 0;
      const auto turns = run / period + 1;
      if (turns >= 3 && turns * period > best.turns * best.period) {
        best = {i + 1 - run, period, turns};
      }
    }
    if (best.turns * best.period * 8 >= (end - begin) * 7) {
      break; // a longer period can hardly cover more
    }
  }
  return best;
}

std::vector<std::pair<size_t, size_t>> cut_segments(const Trace& trace, bool by_turns) {
  return Cutter(trace, by_turns).cut();
}

} // namespace torus
