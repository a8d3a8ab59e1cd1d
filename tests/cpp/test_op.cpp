#include "op.h"

#include "check.h"

using namespace torus;

namespace {

OpInfo info_of(const std::string& name, OpForm form, RuleTraits rule = {}) {
  rule.name = name;
  const auto parsed = parse_name(name);
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(parsed.name.c_str(), parsed.overload_name.c_str());
  return OpInfo(op.schema(), form, rule);
}

const ArgInfo& argument(const OpInfo& info, const std::string& name) {
  for (const auto& arg : info.args) {
    if (arg.name == name) {
      return arg;
    }
  }
  TORCH_CHECK(false, info.name, " has no argument ", name);
}

// One letter for each argument: Tensor, List of tensors, scalar, Scalars, generator, ignored, static.
std::string kinds(const OpInfo& info) {
  std::string letters;
  for (const auto& arg : info.args) {
    letters += "TLsSgi."[static_cast<size_t>(arg.kind)];
  }
  return letters;
}

std::string written(const OpInfo& info) {
  std::string names;
  for (const auto& arg : info.args) {
    names += arg.written ? arg.name + " " : "";
  }
  return names;
}

} // namespace

TEST(names_are_parsed_and_formatted) {
  EXPECT_EQ(parse_name("aten::add.Tensor"), c10::OperatorName("aten::add", "Tensor"));
  EXPECT_EQ(parse_name("aten::relu"), c10::OperatorName("aten::relu", ""));
  for (const char* name : {"aten::add.Tensor", "aten::relu", "aten::_foreach_add_.ScalarList"}) {
    EXPECT_EQ(format_name(parse_name(name)), name);
  }
}

TEST(arguments_of_a_functional_op) {
  const auto info = info_of("aten::add.Tensor", OpForm::kFunctional);
  EXPECT_EQ(info.name, "aten::add.Tensor");
  EXPECT_EQ(kinds(info), "TTs");
  EXPECT_EQ(written(info), "");
  EXPECT(!info.writes);
  EXPECT(argument(info, "alpha").keyword);
  EXPECT(!argument(info, "other").keyword);
}

TEST(arguments_of_an_out_op) {
  const auto info = info_of("aten::add.out", OpForm::kOut);
  EXPECT_EQ(kinds(info), "TTsT");
  EXPECT_EQ(written(info), "out ");
  EXPECT(info.writes);
  EXPECT(argument(info, "out").result_only && argument(info, "out").keyword);
  EXPECT(!argument(info, "self").result_only);
}

TEST(arguments_of_an_in_place_op) {
  const auto info = info_of("aten::add_.Tensor", OpForm::kInPlace);
  EXPECT_EQ(kinds(info), "TTs");
  EXPECT_EQ(written(info), "self ");
  EXPECT(info.writes);
  EXPECT(!argument(info, "self").result_only);
}

TEST(arguments_that_only_the_rule_knows_to_be_written) {
  RuleTraits rule;
  rule.mutates = {"running_mean", "running_var"};
  const auto info = info_of("aten::native_batch_norm", OpForm::kFunctional, rule);
  EXPECT_EQ(kinds(info), "TTTTT.ss");
  EXPECT_EQ(written(info), "running_mean running_var ");
  EXPECT(info.writes);
  EXPECT(!info_of("aten::native_batch_norm", OpForm::kFunctional).writes);
}

TEST(arguments_that_are_lists) {
  const auto info = info_of("aten::_foreach_add_.List", OpForm::kInPlace);
  EXPECT_EQ(kinds(info), "LLs");
  EXPECT_EQ(written(info), "self ");
  EXPECT_EQ(kinds(info_of("aten::_foreach_add_.ScalarList", OpForm::kInPlace)), "LS");
  EXPECT_EQ(kinds(info_of("aten::index.Tensor", OpForm::kFunctional)), "TL"); // Tensor?[]
}

TEST(arguments_of_a_factory) {
  const auto info = info_of("aten::arange.start_step", OpForm::kFunctional);
  EXPECT_EQ(kinds(info), "sss.iii");
  EXPECT(argument(info, "dtype").is_dtype && argument(info, "dtype").keyword);
  EXPECT(!argument(info, "start").is_dtype && !argument(info, "layout").is_dtype);
}

TEST(generators_are_arguments_of_their_own) {
  EXPECT_EQ(kinds(info_of("aten::bernoulli.p", OpForm::kFunctional)), "Tsg");
}

TEST(a_rule_moves_arguments_in_and_out_of_the_signature) {
  EXPECT_EQ(kinds(info_of("aten::select.int", OpForm::kFunctional)), "T..");
  RuleTraits runtime;
  runtime.runtime_args = {"index"};
  EXPECT_EQ(kinds(info_of("aten::select.int", OpForm::kFunctional, runtime)), "T.s");
  RuleTraits fixed;
  fixed.static_args = {"alpha"};
  EXPECT_EQ(kinds(info_of("aten::add.Tensor", OpForm::kFunctional, fixed)), "TT.");
}

TEST(every_op_has_its_own_id) {
  const auto first = info_of("aten::relu", OpForm::kFunctional);
  const auto second = info_of("aten::relu", OpForm::kFunctional);
  EXPECT(first.id != second.id);
}
