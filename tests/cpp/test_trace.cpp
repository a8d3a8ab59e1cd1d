#include "trace.h"

#include "check.h"

using namespace torus;

namespace {

const OpInfo& add_op() {
  static const auto& info = [&]() -> const OpInfo& {
    RuleTraits rule;
    rule.name = "aten::add.Tensor";
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::add", "Tensor");
    return *new OpInfo(op.schema(), OpForm::kFunctional, rule);
  }();
  return info;
}

const Layout* floats() {
  return intern_layout(at::kFloat, {4});
}

at::Tensor tensor_of(ValuePtr value) {
  return make_tensor(std::move(value), at::kFloat, {4}, {1});
}

at::Tensor computed() {
  Py_INCREF(Py_None);
  return tensor_of(c10::make_intrusive<Value>(Py_None, floats(), 0));
}

// An op of two tensors, one number and one result.
struct Recorder {
  Recorder() {
    entry.op = &add_op();
    entry.inputs = {0, 1};
    entry.takes_pack = true;
    entry.cost = 3;
  }

  at::Tensor add(Trace& trace, const at::Tensor& a, const at::Tensor& b, int number) {
    const std::vector<c10::IValue> args{a, b, number};
    trace.add(entry, Signature(add_op(), args));
    auto value =
        c10::make_intrusive<Value>(&trace, static_cast<int32_t>(trace.results.size()), floats(), c10::DeviceIndex{0});
    trace.results.push_back(value);
    return tensor_of(std::move(value));
  }

  Entry entry;
};

const ValuePtr& value_of(const at::Tensor& tensor) {
  return state_of(tensor).value;
}

std::string numbers(const std::vector<int32_t>& values) {
  std::string text;
  for (auto value : values) {
    text += (text.empty() ? "" : " ") + std::to_string(value);
  }
  return text;
}

std::string words(const Trace& trace) {
  return numbers({trace.words.begin(), trace.words.end()});
}

// Ends what tests left pending: a trace outlives its pending values.
void finish(Trace& trace) {
  for (auto& value : trace.results) {
    value->fulfill(Py_None);
  }
}

} // namespace

TEST(a_node_knows_where_its_inputs_come_from) {
  Trace trace(0, 1);
  Recorder recorder;
  const auto x = computed();
  const auto y = computed();
  const auto a = recorder.add(trace, x, y, 5);
  const auto b = recorder.add(trace, a, x, 6);
  EXPECT_EQ(trace.nodes.size(), size_t{2});
  EXPECT_EQ(numbers(trace.inputs), "-1 -2 0 -1");
  EXPECT_EQ(words(trace), "5 6");
  EXPECT_EQ(trace.externals.size(), size_t{2});
  EXPECT_EQ(trace.cost, int64_t{6});
  EXPECT(&trace.value(-2) == &trace.externals[1] && trace.value(0) == value_of(a));
  EXPECT_EQ(trace.end_of_inputs(0), 2);
  EXPECT_EQ(trace.end_of_inputs(1), 4);
  EXPECT_EQ(trace.end_of_results(1), 2);
  EXPECT_EQ(trace.end_of_words(0), 1);
  EXPECT(value_of(b)->pending() && value_of(b)->trace() == &trace);
  finish(trace);
}

TEST(a_number_at_its_usual_value_is_no_word) {
  Trace trace(0, 1);
  Recorder recorder;
  recorder.add(trace, computed(), computed(), 1);
  EXPECT_EQ(words(trace), "");
  finish(trace);
}

TEST(two_traces_may_read_one_value) {
  Trace first(0, 1);
  Trace second(0, 2);
  Recorder recorder;
  const auto x = computed();
  const auto y = computed();
  recorder.add(first, y, x, 2);
  recorder.add(second, x, x, 2); // the hint that x carries is now of the second trace
  recorder.add(first, x, y, 2);
  EXPECT_EQ(numbers(second.inputs), "-1 -1");
  for (auto input : first.inputs) {
    EXPECT(first.value(input) == value_of(x) || first.value(input) == value_of(y));
  }
  EXPECT(first.value(first.inputs[2]) == value_of(x) && first.value(first.inputs[3]) == value_of(y));
  finish(first);
  finish(second);
}

TEST(a_trace_takes_over_what_another_has_recorded) {
  Trace older(0, 1);
  Trace newer(0, 2);
  Recorder recorder;
  const auto x = computed();
  const auto y = computed();
  const auto a = recorder.add(older, x, x, 2);
  const auto b = recorder.add(newer, y, x, 3);
  const auto c = recorder.add(newer, b, y, 4);
  newer.backward = 7;
  older.absorb(newer);
  EXPECT_EQ(older.nodes.size(), size_t{3});
  const ValuePtr expected[] = {value_of(x), value_of(x), value_of(y), value_of(x), value_of(b), value_of(y)};
  for (size_t i = 0; i < older.inputs.size(); ++i) {
    EXPECT(older.value(older.inputs[i]) == expected[i]); // by value: an argument may have two numbers
  }
  EXPECT_EQ(words(older), "2 3 4");
  EXPECT_EQ(older.nodes[2].first_input, 4);
  EXPECT_EQ(older.nodes[2].first_result, 2);
  EXPECT_EQ(older.nodes[2].first_word, 2);
  EXPECT_EQ(older.cost, int64_t{9});
  EXPECT_EQ(older.backward, 7);
  EXPECT(value_of(c)->trace() == &older && value_of(c)->slot() == 2);
  EXPECT(value_of(b)->trace() == &older && value_of(b)->slot() == 1);
  EXPECT(value_of(a)->slot() == 0);
  EXPECT(newer.nodes.empty() && newer.results.empty() && newer.externals.empty() && newer.words.empty());
  EXPECT_EQ(newer.cost, int64_t{0});
  finish(older);
}

TEST(an_empty_trace_takes_over_all) {
  Trace empty(0, 1);
  Trace full(0, 2);
  Recorder recorder;
  const auto a = recorder.add(full, computed(), computed(), 2);
  empty.absorb(full);
  EXPECT_EQ(empty.nodes.size(), size_t{1});
  EXPECT_EQ(numbers(empty.inputs), "-1 -2");
  EXPECT(value_of(a)->trace() == &empty);
  empty.absorb(full); // nothing is left
  EXPECT_EQ(empty.nodes.size(), size_t{1});
  finish(empty);
}

TEST(a_trace_is_split) {
  Trace trace(0, 1);
  Trace rest(0, 2);
  Recorder recorder;
  const auto x = computed();
  const auto y = computed();
  const auto a = recorder.add(trace, x, x, 2);
  const auto b = recorder.add(trace, a, y, 3);
  const auto c = recorder.add(trace, b, a, 4);
  const auto d = recorder.add(trace, c, y, 5);
  trace.split(2, rest);
  EXPECT_EQ(trace.nodes.size(), size_t{2});
  EXPECT_EQ(trace.results.size(), size_t{2});
  EXPECT_EQ(numbers(trace.inputs), "-1 -1 0 -2");
  EXPECT_EQ(words(trace), "2 3");
  EXPECT_EQ(trace.cost, int64_t{6});
  EXPECT_EQ(rest.nodes.size(), size_t{2});
  EXPECT_EQ(numbers(rest.inputs), "-1 -2 0 -3"); // b, a, c, y
  EXPECT_EQ(words(rest), "4 5");
  EXPECT_EQ(rest.cost, int64_t{6});
  EXPECT_EQ(rest.nodes[0].first_result, 0);
  EXPECT_EQ(rest.nodes[1].first_input, 2);
  EXPECT(rest.externals[0] == value_of(b) && rest.externals[1] == value_of(a) && rest.externals[2] == value_of(y));
  EXPECT(value_of(b)->trace() == &trace && value_of(c)->trace() == &rest);
  EXPECT_EQ(value_of(d)->slot(), 1);
  finish(trace);
  finish(rest);
}

TEST(a_trace_may_be_split_at_its_start) {
  Trace trace(0, 1);
  Trace rest(0, 2);
  Recorder recorder;
  const auto a = recorder.add(trace, computed(), computed(), 2);
  trace.split(0, rest);
  EXPECT(trace.nodes.empty() && trace.results.empty() && trace.words.empty());
  EXPECT_EQ(trace.cost, int64_t{0});
  EXPECT_EQ(rest.nodes.size(), size_t{1});
  EXPECT(value_of(a)->trace() == &rest);
  finish(rest);
}

TEST(a_value_ends_its_wait_once) {
  Trace trace(0, 1);
  Recorder recorder;
  const auto before = memory_stats(0).current;
  const auto a = recorder.add(trace, computed(), computed(), 2);
  const auto b = recorder.add(trace, a, a, 2);
  EXPECT(!value_of(a)->ready());
  value_of(a)->fulfill(Py_None);
  EXPECT(value_of(a)->ready() && !value_of(a)->pending() && value_of(a)->array() == Py_None);
  value_of(b)->poison(Py_None);
  EXPECT(!value_of(b)->ready() && !value_of(b)->pending() && value_of(b)->error() == Py_None);
  EXPECT(memory_stats(0).current >= before + floats()->nbytes()); // a, not b
}
