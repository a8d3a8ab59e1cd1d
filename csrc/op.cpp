#include "op.h"

#include <ATen/Dispatch_v2.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <initializer_list>
#include <tuple>

namespace torus {
namespace {

std::atomic<uint64_t> next_id{1};

// Strips Optional[...].
c10::TypePtr strip_optional(c10::TypePtr type) {
  if (auto optional = type->cast<c10::OptionalType>()) {
    return optional->getElementType();
  }
  return type;
}

bool is_tensor_list(const c10::Type& type) {
  if (type.kind() != c10::TypeKind::ListType) {
    return false;
  }
  return strip_optional(type.expectRef<c10::ListType>().getElementType())->kind() == c10::TypeKind::TensorType;
}

bool is_scalar(c10::TypeKind kind) {
  return kind == c10::TypeKind::NumberType || kind == c10::TypeKind::FloatType;
}

bool is_scalar_list(const c10::Type& type) {
  return type.kind() == c10::TypeKind::ListType &&
         type.expectRef<c10::ListType>().getElementType()->kind() == c10::TypeKind::NumberType;
}

ArgKind kind_of(const c10::Argument& argument, const RuleTraits& rule) {
  // real_type keeps ScalarType, Layout and Device apart from int.
  const auto type = strip_optional(argument.real_type());
  const auto kind = type->kind();
  const bool fixed = rule.static_args.count(argument.name()) != 0;
  if (kind == c10::TypeKind::TensorType) {
    return ArgKind::kTensor;
  }
  if (is_tensor_list(*type)) {
    return ArgKind::kTensorList;
  }
  if (kind == c10::TypeKind::GeneratorType) {
    return ArgKind::kGenerator;
  }
  if (kind == c10::TypeKind::DeviceObjType || kind == c10::TypeKind::LayoutType || argument.name() == "pin_memory") {
    return ArgKind::kIgnored;
  }
  if (!fixed && (is_scalar(kind) || rule.runtime_args.count(argument.name()) != 0)) {
    return ArgKind::kScalar;
  }
  if (!fixed && is_scalar_list(*type)) {
    return ArgKind::kScalarList;
  }
  return ArgKind::kStatic;
}

bool starts_with_any(const std::string& name, std::initializer_list<const char*> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](const char* prefix) { return name.rfind(prefix, 0) == 0; });
}

// Ops whose out= form PyTorch refuses when it writes to one of the tensors that it reads.
bool moves_elements(const std::string& name) {
  return starts_with_any(name, {"aten::cat.", "aten::gather.", "aten::index_select.", "aten::kthvalue.",
                                "aten::masked_select.", "aten::take."});
}

// As floats, and as integers where they are some: these promote in another way.
void add_known(ArgInfo& info, const std::vector<double>& values) {
  for (const double value : values) {
    info.usual.emplace_back(value);
    if (std::trunc(value) == value) {
      info.usual.emplace_back(static_cast<int64_t>(value));
    }
  }
}

} // namespace

c10::OperatorName parse_name(const std::string& name) {
  const auto dot = name.find('.');
  return dot == std::string::npos ? c10::OperatorName(name, "")
                                  : c10::OperatorName(name.substr(0, dot), name.substr(dot + 1));
}

std::string format_name(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

OpInfo::OpInfo(const c10::FunctionSchema& schema, OpForm op_form, const RuleTraits& traits)
    : name(format_name(schema.operator_name())), form(op_form), rule(traits), id(next_id.fetch_add(1)) {
  for (const auto& argument : schema.arguments()) {
    ArgInfo info;
    info.name = argument.name();
    info.kind = kind_of(argument, traits);
    info.is_dtype = strip_optional(argument.real_type())->kind() == c10::TypeKind::ScalarTypeType;
    info.keyword = argument.kwarg_only();
    if (info.kind == ArgKind::kScalar && argument.default_value().has_value() && argument.default_value()->isScalar()) {
      info.usual.push_back(argument.default_value()->toScalar());
    }
    if (const auto known = traits.known.find(info.name); known != traits.known.end()) {
      add_known(info, known->second);
    }
    if (const auto bounds = traits.bounds.find(info.name); bounds != traits.bounds.end()) {
      info.bounds = bounds->second;
    }
    info.fits = traits.fits.count(info.name) > 0;
    const auto* alias = argument.alias_info();
    const bool mutated = std::find(traits.mutates.begin(), traits.mutates.end(), info.name) != traits.mutates.end();
    info.written = (alias != nullptr && alias->isWrite()) || mutated;
    info.result_only = op_form == OpForm::kOut && info.written && !mutated; // statistics are updated, not only written
    writes = writes || info.written;
    args.push_back(std::move(info));
  }
  allows_shared_elements =
      starts_with_any(name, {"aten::fill_", "aten::zero_", "aten::masked_fill_", "aten::index_fill_",
                             "aten::index_put_", "aten::_index_put_impl_", "aten::masked_scatter_"});
  // Lists are optimizer state; their ops are elementwise over pairs, and PyTorch does not check them either.
  forbids_overlap = writes && !allows_shared_elements && !starts_with_any(name, {"aten::_foreach", "aten::_fused"});
  forbids_aliases = form == OpForm::kOut && moves_elements(name);
}

OpInfo::OpInfo(std::vector<ArgInfo> arguments, const RuleTraits& traits)
    : name(traits.name),
      form(OpForm::kFunctional),
      rule(traits),
      id(next_id.fetch_add(1)),
      args(std::move(arguments)),
      writes(std::any_of(args.begin(), args.end(), [](const ArgInfo& info) { return info.written; })) {}

void check_bounds(const Bounds& bounds, const c10::Scalar& value) {
  if (value.isComplex()) {
    return;
  }
  const auto v = value.toDouble();
  const bool inside = bounds.open ? bounds.low < v && v < bounds.high : bounds.low <= v && v <= bounds.high;
  TORCH_CHECK(inside, bounds.words, bounds.words.back() == '.' ? std::string() : c10::str(v));
}

void check_fits(const OpInfo& info, at::ArrayRef<c10::IValue> args, c10::ScalarType dtype, int64_t numel) {
  if (numel <= 1 && c10::isReducedFloatingType(dtype)) {
    return;
  }
  for (size_t i = 0; i < args.size(); ++i) {
    if (info.args[i].fits && args[i].isScalar()) {
      const auto value = args[i].toScalar();
      AT_DISPATCH_V2(dtype, "a number", AT_WRAP([&] { std::ignore = value.to<scalar_t>(); }),
                     AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
                     AT_EXPAND(AT_FLOAT8_TYPES), c10::kBool, c10::kHalf, c10::kBFloat16);
    }
  }
}

std::optional<size_t> find_usual(const ArgInfo& info, const c10::IValue& value) {
  if (info.usual.empty() || !value.isScalar()) {
    return std::nullopt;
  }
  const auto scalar = value.toScalar();
  const auto is_it = [&](const c10::Scalar& usual) {
    return scalar.type() == usual.type() &&
           (scalar.isFloatingPoint() ? scalar.toDouble() == usual.toDouble()
                                     : scalar.isIntegral(true) && scalar.toLong() == usual.toLong());
  };
  const auto found = std::find_if(info.usual.begin(), info.usual.end(), is_it);
  return found == info.usual.end() ? std::nullopt : std::optional<size_t>(found - info.usual.begin());
}

} // namespace torus
