#include "segments.h"

#include "check.h"
#include "fusion.h"

using namespace torus;

namespace {

// A trace of ops that letters stand for; a capital one costs `large`.
class Ops {
 public:
  explicit Ops(const std::string& letters, int32_t small = 1, int32_t large = 400) : trace_(0, 1) {
    for (const char letter : letters) {
      auto& entry = entries_[static_cast<unsigned char>(letter)];
      entry.cost = letter < 'a' ? large : small;
      Node node{};
      node.entry = &entry;
      node.place = -1;
      trace_.nodes.push_back(node);
    }
  }

  // "start+period*turns", or "none".
  std::string loop() const {
    const auto found = find_loop(trace_, 0, trace_.nodes.size());
    return found.turns == 0
               ? "none"
               : std::to_string(found.start) + "+" + std::to_string(found.period) + "*" + std::to_string(found.turns);
  }

  // The lengths of the segments, which must cover the trace in order.
  std::string cut(bool by_turns = false) const {
    std::string lengths;
    size_t place = 0;
    for (const auto& [begin, end] : cut_segments(trace_, by_turns)) {
      EXPECT_EQ(begin, place);
      EXPECT(end > begin);
      lengths += (lengths.empty() ? "" : " ") + std::to_string(end - begin);
      place = end;
    }
    EXPECT_EQ(place, trace_.nodes.size());
    return lengths;
  }

  int64_t most_costly() const {
    int64_t most = 0;
    for (const auto& [begin, end] : cut_segments(trace_, false)) {
      int64_t cost = 0;
      for (size_t i = begin; i < end; ++i) {
        cost += trace_.nodes[i].entry->cost;
      }
      most = std::max(most, cost);
    }
    return most;
  }

 private:
  Entry entries_[256];
  Trace trace_;
};

std::string times(int count, const std::string& text) {
  std::string result;
  for (int i = 0; i < count; ++i) {
    result += text;
  }
  return result;
}

// Letters without a loop to speak of.
std::string irregular(int count) {
  std::string result;
  uint32_t state = 12345;
  for (int i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    result += static_cast<char>('a' + (state >> 16) % 26);
  }
  return result;
}

} // namespace

TEST(a_loop_is_what_comes_three_times) {
  EXPECT_EQ(Ops("").loop(), "none");
  EXPECT_EQ(Ops("a").loop(), "none");
  EXPECT_EQ(Ops("abab").loop(), "none");
  EXPECT_EQ(Ops("ababab").loop(), "0+2*3");
  EXPECT_EQ(Ops("aaa").loop(), "0+1*3");
  EXPECT_EQ(Ops("abcabcabcabc").loop(), "0+3*4");
}

TEST(a_loop_has_a_start_and_an_end) {
  EXPECT_EQ(Ops("xyabcabcabcz").loop(), "2+3*3");
  EXPECT_EQ(Ops("xyabcabcabcab").loop(), "2+3*3"); // the last turn is not complete
}

TEST(the_loop_that_covers_most_is_found) {
  EXPECT_EQ(Ops("aaaa" + times(5, "bcd")).loop(), "4+3*5");
  EXPECT_EQ(Ops(times(4, "aaab")).loop(), "0+4*4"); // not its inner one
  EXPECT_EQ(Ops(times(6, "ab")).loop(), "0+2*6");   // not twice its body
}

TEST(a_long_body_is_found_up_to_a_limit) {
  const auto body = irregular(500);
  EXPECT_EQ(Ops(times(3, body)).loop(), "0+500*3");
}

TEST(a_part_of_a_trace_has_its_own_loop) {
  Ops ops("aaaaaabcbcbc");
  EXPECT_EQ(ops.loop(), "0+1*6");
}

TEST(a_small_trace_is_one_segment) {
  EXPECT_EQ(Ops("a").cut(), "1");
  EXPECT_EQ(Ops("xyabcabcabcz").cut(), "12");
  EXPECT_EQ(Ops("").cut(), "");
}

TEST(by_turns_a_small_loop_is_cut_too) {
  EXPECT_EQ(Ops("xy" + times(7, "abc") + "z").cut(true), "2 12 6 3 1");
  EXPECT_EQ(Ops(times(8, "ab")).cut(true), "16");
  EXPECT_EQ(Ops("abcd").cut(true), "4"); // no loop
}

TEST(a_large_loop_is_cut_at_its_turns) {
  // 400 + 2 a turn: two turns fit into 1000.
  EXPECT_EQ(Ops(times(7, "Xab")).cut(), "6 6 6 3");
  EXPECT_EQ(Ops("q" + times(4, "Xab") + "rs").cut(), "1 6 6 2");
}

TEST(loops_of_any_length_share_segments) {
  EXPECT_EQ(Ops(times(40, "Xa")).cut(), times(19, "4 ") + "4");
  EXPECT_EQ(Ops(times(41, "Xa")).cut(), times(20, "4 ") + "2");
}

TEST(what_has_no_loop_is_cut_into_pieces_of_about_one_size) {
  const Ops ops(irregular(2500));
  EXPECT(ops.most_costly() <= kLargestSegment);
  EXPECT_EQ(cut_segments(Trace(0, 1), false).size(), size_t{0});
}

TEST(an_op_beyond_every_limit_is_a_segment_of_its_own) {
  EXPECT_EQ(Ops("X", 1, 5000).cut(), "1");
  EXPECT(!Ops("aXbX", 1, 5000).cut().empty());
}

TEST(a_loop_whose_body_is_too_large_is_cut_by_size) {
  const Ops ops(times(4, "ABCDe"), 1, 400); // 1601 a turn
  EXPECT(!ops.cut().empty());
  EXPECT(ops.most_costly() <= 2 * kLargestSegment);
}
