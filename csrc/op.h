// What the core knows of one ATen overload: how its arguments take part in a signature, and which of them it writes.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace torus {

enum class ArgKind : uint8_t {
  kTensor,     // Tensor, Tensor?
  kTensorList, // Tensor[], Tensor?[]
  kScalar,     // traced: Scalar, float, and ints that the rule wants at run time
  kScalarList,
  kGenerator,
  kIgnored, // device, layout, pin_memory: they say where, not what
  kStatic   // part of the signature
};

// What a number may be; see torus.backend.lowering.registry.
struct Bounds {
  std::string words;
  double low;
  double high;
  bool open;
};

struct Order {
  std::string low;
  std::string high;
  bool strict;
  std::string words;
};

struct ArgInfo {
  std::string name;
  ArgKind kind;
  bool is_dtype = false;
  bool written = false;
  bool result_only = false; // out=: written, and no input of the rule
  bool keyword = false;
  // Of a scalar: its default and what the rule knows. Calls with one of these have programs of their own, in which it
  // is a constant.
  std::vector<c10::Scalar> usual;
  std::optional<Bounds> bounds;
  bool fits = false; // the dtype of the first result must be able to hold the number
};

enum class OpForm : uint8_t { kFunctional, kInPlace, kOut };

// What a rule declares; see torus.backend.lowering.registry.lowers.
struct RuleTraits {
  std::string name;
  std::unordered_set<std::string> static_args;
  std::unordered_set<std::string> runtime_args;
  std::unordered_map<std::string, std::vector<double>> known;
  std::unordered_map<std::string, Bounds> bounds;
  std::optional<Order> order;
  std::unordered_set<std::string> fits;
  std::vector<std::string> mutates;
  bool wide = false;
  bool host_tensors = false;
  bool implicit_random = false;
  // How many ops of it draw random numbers: a compiled graph may have several.
  uint32_t draws = 1;
  // The length of the result follows from the scalars `start`, `end` and `step`: the length joins the signature, they
  // do not.
  bool range_length = false;
};

struct OpInfo {
  OpInfo(const c10::FunctionSchema& schema, OpForm form, const RuleTraits& rule);
  // A compiled graph: an op of its own, named by its rule.
  OpInfo(std::vector<ArgInfo> args, const RuleTraits& rule);

  std::string name;
  OpForm form;
  RuleTraits rule;
  uint64_t id;
  std::vector<ArgInfo> args;
  bool writes = false;
  // Its written and its read arguments must not overlap in part.
  bool forbids_overlap = false;
  // It may write to tensors whose elements share memory: one value to all elements, or to chosen ones.
  bool allows_shared_elements = false;
  // An out= tensor may not be one of the tensors read: elements come from other places than they go to.
  bool forbids_aliases = false;
  // The functional overload that says the sizes and dtypes of the results; none when the rule is of the in-place op
  // itself.
  std::optional<c10::OperatorHandle> functional;
};

// Which of the values with programs of their own a scalar argument has, kind of number included.
std::optional<size_t> find_usual(const ArgInfo& info, const c10::IValue& value);

// Raises RuntimeError for a number that an op does not accept.
void check_bounds(const Bounds& bounds, const c10::Scalar& value);
// The same for numbers that a result of `dtype` cannot hold, in PyTorch's words. A single element of less than 32 bits
// becomes infinite instead, as on the CPU: so does the -1e9 of `torch.where(mask, half, -1e9)`.
void check_fits(const OpInfo& info, at::ArrayRef<c10::IValue> args, c10::ScalarType dtype, int64_t numel);

// "aten::add.Tensor" -> its parts.
c10::OperatorName parse_name(const std::string& name);
std::string format_name(const c10::OperatorName& name);

} // namespace torus
