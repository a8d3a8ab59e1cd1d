#include "signature.h"

#include "check.h"

using namespace torus;

namespace {

const OpInfo& kept_info(const std::string& name, OpForm form) {
  RuleTraits rule;
  rule.name = name;
  const auto parsed = parse_name(name);
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(parsed.name.c_str(), parsed.overload_name.c_str());
  return *new OpInfo(op.schema(), form, rule); // signatures refer to it
}

const OpInfo& add() {
  static const auto& info = kept_info("aten::add.Tensor", OpForm::kFunctional);
  return info;
}

const OpInfo& add_in_place() {
  static const auto& info = kept_info("aten::add_.Tensor", OpForm::kInPlace);
  return info;
}

at::Tensor tensor_of(at::IntArrayRef sizes, c10::ScalarType dtype = at::kFloat, c10::DeviceIndex device = 0) {
  Py_INCREF(Py_None);
  return make_tensor(c10::make_intrusive<Value>(Py_None, intern_layout(dtype, sizes), device), dtype, sizes,
                     torus::contiguous_strides(sizes));
}

// A view, made without an op: these tests have no kernels.
at::Tensor view_of(const at::Tensor& base, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) {
  auto impl = base.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(0), false);
  impl->set_sizes_and_strides(sizes, strides, offset);
  return at::Tensor(std::move(impl));
}

// What is kept of a signature after its arguments are gone.
struct Seen {
  Key key;
  std::vector<uint32_t> pack;

  Seen(const OpInfo& op, const std::vector<c10::IValue>& args) {
    const Signature signature(op, args);
    key = signature.key();
    pack.assign(signature.pack().begin(), signature.pack().end());
  }
};

Seen add_number(const at::Tensor& self, const c10::Scalar& number) {
  static const auto& op = kept_info("aten::add.Scalar", OpForm::kFunctional);
  return Seen(op, {self, number, 1});
}

} // namespace

TEST(scalar_values_are_not_in_the_key) {
  const auto x = tensor_of({2, 3});
  static const auto& op = kept_info("aten::add.Scalar", OpForm::kFunctional);
  const Seen one(op, {x, 1, 1});
  const Seen two(op, {x, 2, 1});
  const Seen real(op, {x, 2.0, 1});
  EXPECT(one.key == two.key);
  EXPECT(one.pack != two.pack);
  EXPECT(one.key != real.key); // the kind decides the dtype of the result
}

TEST(whole_numbers_keep_all_their_bits) {
  const auto large = (int64_t{1} << 53) + 1;
  const auto seen = add_number(tensor_of({2}, at::kLong), large);
  EXPECT_EQ(seen.pack.at(0), static_cast<uint32_t>(large));
  EXPECT_EQ(seen.pack.at(1), static_cast<uint32_t>(large >> 32));
}

TEST(a_whole_number_takes_as_many_words_as_it_needs) {
  const auto x = tensor_of({2}, at::kLong);
  const auto largest = int64_t{2147483647};
  for (const int64_t number : {int64_t{0}, int64_t{-5}, largest, -largest - 1}) {
    const auto seen = add_number(x, number);
    EXPECT_EQ(seen.pack.size(), size_t{1});
    EXPECT_EQ(static_cast<int32_t>(seen.pack.at(0)), static_cast<int32_t>(number));
  }
  for (const int64_t number : {largest + 1, -largest - 2}) {
    EXPECT_EQ(add_number(x, number).pack.size(), size_t{2});
    EXPECT(add_number(x, number).key != add_number(x, 5).key);
    EXPECT(add_number(x, number).key == add_number(x, largest + 7).key);
  }
  EXPECT_EQ(add_number(x, true).pack.size(), size_t{1});
}

TEST(a_number_with_its_usual_value_is_a_constant) {
  const auto x = tensor_of({2, 3});
  const Seen usual(add(), {x, x, 1});
  const Seen other(add(), {x, x, 2});
  const Seen another(add(), {x, x, 3});
  EXPECT(usual.pack.empty());
  EXPECT_EQ(other.pack.size(), size_t{1});
  EXPECT(usual.key != other.key && other.key == another.key);
  // Of another kind it is another number: the kind decides the dtype of the result.
  EXPECT_EQ(Seen(add(), {x, x, 1.0}).pack.size(), size_t{1});
  EXPECT(Seen(add(), {x, x, true}).key != usual.key);
}

TEST(a_real_number_has_the_bits_that_its_tensors_have) {
  EXPECT_EQ(add_number(tensor_of({2}), 0.5).pack.size(), size_t{1});
  EXPECT_EQ(add_number(tensor_of({2}, at::kDouble), 0.5).pack.size(), size_t{2});
  EXPECT_EQ(add_number(tensor_of({2}, at::kComplexFloat), c10::complex<double>(1, 2)).pack.size(), size_t{2});
}

TEST(offsets_are_not_in_the_key) {
  const auto base = tensor_of({10});
  const auto y = tensor_of({2});
  const Seen first(add(), {view_of(base, {2}, {1}, 1), y, 1});
  const Seen second(add(), {view_of(base, {2}, {1}, 7), y, 1});
  EXPECT(first.key == second.key);
  EXPECT(first.pack != second.pack);
  EXPECT_EQ(second.pack.back(), uint32_t{7});
  const Seen third(add(), {view_of(base, {2}, {3}, 1), y, 1});
  EXPECT(first.key != third.key);
}

TEST(a_tensor_that_spans_its_storage_has_no_offset) {
  const auto x = tensor_of({4, 3});
  const std::vector<c10::IValue> args{view_of(x, {3, 4}, {1, 3}, 0), view_of(x, {3}, {1}, 3), 1};
  const Signature signature(add(), args);
  EXPECT_EQ(signature.tensors()[0].offset_word, -1);
  EXPECT(signature.tensors()[1].offset_word >= 0);
}

TEST(what_decides_the_program_is_in_the_key) {
  const Seen base(add(), {tensor_of({2, 3}), tensor_of({2, 3}), 1});
  EXPECT(base.key == Seen(add(), {tensor_of({2, 3}), tensor_of({2, 3}), 1}).key);
  EXPECT(base.key != Seen(add(), {tensor_of({3, 2}), tensor_of({2, 3}), 1}).key);
  EXPECT(base.key != Seen(add(), {tensor_of({2, 3}, at::kInt), tensor_of({2, 3}), 1}).key);
  EXPECT(base.key != Seen(add(), {tensor_of({2, 3}), tensor_of({3}), 1}).key);
  EXPECT(base.key != Seen(add(), {tensor_of({2, 3}, at::kFloat, 1), tensor_of({2, 3}, at::kFloat, 1), 1}).key);
  EXPECT(base.key != Seen(add_in_place(), {tensor_of({2, 3}), tensor_of({2, 3}), 1}).key);
  set_precision(0);
  EXPECT(base.key != Seen(add(), {tensor_of({2, 3}), tensor_of({2, 3}), 1}).key);
  set_precision(-1);
}

TEST(storages_with_values_of_other_layouts_have_other_keys) {
  const auto x = tensor_of({6});
  const Seen before(add(), {x, x, 1});
  Py_INCREF(Py_None);
  state_of(x).value = c10::make_intrusive<Value>(Py_None, intern_layout(at::kByte, {24}), 0);
  const Seen bytes(add(), {x, x, 1});
  state_of(x).value = nullptr;
  const Seen unwritten(add(), {x, x, 1});
  EXPECT(before.key != bytes.key);
  EXPECT(before.key != unwritten.key);
}

TEST(a_write_must_know_what_shares_a_storage) {
  const auto x = tensor_of({4});
  const auto y = tensor_of({4});
  const std::vector<c10::IValue> same{x, x, 1};
  const std::vector<c10::IValue> other{x, y, 1};
  const Signature aliased(add_in_place(), same);
  const Signature apart(add_in_place(), other);
  EXPECT_EQ(aliased.tensors()[1].slot, 0);
  EXPECT_EQ(apart.tensors()[1].slot, 1);
  EXPECT(aliased.key() != apart.key());
  EXPECT(aliased.tensors()[0].written && !aliased.tensors()[1].written);
  // A read does not: x + x is the program of x + y.
  EXPECT(Seen(add(), same).key == Seen(add(), other).key);
}

TEST(tensors_of_two_devices_are_an_error) {
  EXPECT_THROWS(Seen(add(), {tensor_of({2}), tensor_of({2}, at::kFloat, 1), 1}), "tpu:0 and tpu:1");
}

TEST(a_tensor_beyond_its_storage_is_an_error) {
  EXPECT_THROWS(Seen(add(), {view_of(tensor_of({4}), {4}, {1}, 1), tensor_of({4}), 1}), "beyond its storage");
}
