#include "signature.h"

#include <ATen/Context.h>
#include <ATen/DeviceGuard.h>
#include <ATen/ops/_to_copy.h>
#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "device.h"
#include "generator.h"

namespace torus {
namespace {

// Tags make the words of a key self-delimiting.
enum Tag : uint64_t {
  kTagNone = 1,
  kTagTensor,
  kTagHostScalar,
  kTagScalar,
  kTagUsual,
  kTagList,
  kTagInt,
  kTagFloat,
  kTagString,
  kTagRandom
};

constexpr uint64_t tag(Tag t, uint64_t payload = 0) {
  return static_cast<uint64_t>(t) | payload << 8;
}

std::atomic<int> precision_override{-1};
std::atomic<bool> emulates_allowed{false};

bool is_64bit_float(c10::ScalarType dtype) {
  return dtype == at::kDouble || dtype == at::kComplexDouble;
}

// The number of storage elements from a tensor's first to its last.
int64_t span_of(const at::Tensor& tensor) {
  int64_t span = 1;
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) {
      return 0;
    }
    span += (sizes[i] - 1) * strides[i];
  }
  return span;
}

ScalarArg read_scalar(const c10::Scalar& scalar) {
  ScalarArg result{};
  result.wrapped = true;
  if (scalar.isBoolean()) {
    result.kind = ScalarKind::kBool;
    result.integer = scalar.toBool() ? 1 : 0;
  } else if (scalar.isIntegral(false)) {
    result.kind = ScalarKind::kInt;
    result.integer = scalar.toLong();
  } else if (scalar.isComplex()) {
    result.kind = ScalarKind::kComplex;
    const auto value = scalar.toComplexDouble();
    result.real = value.real();
    result.imaginary = value.imag();
  } else {
    result.kind = ScalarKind::kFloat;
    result.real = scalar.toDouble();
  }
  return result;
}

// Reads a CPU tensor without dimensions by pointer; `.item()` would cost two microseconds.
ScalarArg read_host_scalar(const at::Tensor& tensor) {
  const void* data = tensor.const_data_ptr();
  ScalarArg result{};
  switch (tensor.scalar_type()) {
    case at::kDouble:
      result = read_scalar(*static_cast<const double*>(data));
      break;
    case at::kFloat:
      result = read_scalar(*static_cast<const float*>(data));
      break;
    case at::kLong:
      result = read_scalar(*static_cast<const int64_t*>(data));
      break;
    case at::kInt:
      result = read_scalar(*static_cast<const int32_t*>(data));
      break;
    case at::kBool:
      result = read_scalar(*static_cast<const bool*>(data));
      break;
    default:
      result = read_scalar(tensor.item());
      break;
  }
  result.wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  result.from_tensor = true;
  result.dtype = tensor.scalar_type();
  return result;
}

// An integer that 32 bits do not hold.
bool is_long(const ScalarArg& scalar) {
  const bool integral = scalar.kind == ScalarKind::kInt || scalar.kind == ScalarKind::kBool;
  return integral && scalar.integer != static_cast<int32_t>(scalar.integer);
}

uint64_t bits_of(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

uint64_t bits_of(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

} // namespace

uint64_t hash_key(const Key& key) {
  uint64_t h = key.size();
  for (auto word : key) {
    h = (h ^ word) * 0x9E3779B97F4A7C15ULL;
    h ^= h >> 29;
  }
  return h;
}

int precision() {
  const int value = precision_override.load(std::memory_order_relaxed);
  if (value >= 0) {
    return value;
  }
  const bool emulate = emulates_allowed.load(std::memory_order_relaxed);
  switch (at::globalContext().float32MatmulPrecision()) {
    case at::Float32MatmulPrecision::HIGHEST:
      return 2;
    case at::Float32MatmulPrecision::HIGH:
      return emulate ? 4 : 1;
    default:
      return emulate ? 3 : 0;
  }
}

void emulate_allowed_passes(bool value) {
  emulates_allowed.store(value, std::memory_order_relaxed);
}

void set_precision(int value) {
  precision_override.store(value, std::memory_order_relaxed);
}

Signature::Signature(const OpInfo& op, at::ArrayRef<c10::IValue> args) : op_(op) {
  key_.push_back(0); // the head, filled in at the end
  for (size_t i = 0; i < args.size(); ++i) {
    add(op.args[i], args[i]);
  }
  if (op.rule.range_length) {
    add_range_length(args);
  }
  if (op.rule.order.has_value()) {
    check_order(args);
  }
  if (op.rule.implicit_random) {
    key_.push_back(kTagRandom);
    random_word_ = 0;
  }
  if (device_ < 0) {
    device_ = current_device();
  }
  key_[0] = op.id | static_cast<uint64_t>(precision()) << 32 |
            static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()) << 40 | static_cast<uint64_t>(device_) << 48;
  pack_scalars();
  if (random_word_ >= 0) {
    random_word_ = static_cast<int32_t>(pack_.size());
    push_words(0, 2);
    push_words(0, 2);
  }
}

void Signature::add(const ArgInfo& info, const c10::IValue& value) {
  switch (info.kind) {
    case ArgKind::kTensor:
      return add_tensor(info, value);
    case ArgKind::kTensorList: {
      if (value.isNone()) {
        key_.push_back(kTagNone);
        return;
      }
      const auto list = value.toListRef();
      key_.push_back(tag(kTagList, list.size()));
      for (const auto& element : list) {
        add_tensor(info, element);
      }
      return;
    }
    case ArgKind::kScalar:
      return add_scalar(info, value);
    case ArgKind::kScalarList: {
      const auto list = value.toListRef();
      key_.push_back(tag(kTagList, list.size()));
      for (const auto& element : list) {
        add_scalar(info, element);
      }
      return;
    }
    case ArgKind::kGenerator:
      if (!value.isNone()) {
        generator_ = value.toGenerator();
      }
      key_.push_back(kTagRandom);
      random_word_ = 0;
      return;
    case ArgKind::kIgnored:
      if (value.isDevice() && device_ < 0) {
        device_ = resolve_device(value.toDevice());
      }
      return;
    case ArgKind::kStatic:
      return add_static(value);
  }
}

void Signature::add_tensor(const ArgInfo& info, const c10::IValue& value) {
  if (value.isNone()) {
    key_.push_back(kTagNone);
    return;
  }
  const auto& tensor = value.toTensor();
  if (!tensor.defined()) {
    key_.push_back(kTagNone);
  } else if (tensor.device().type() == kDevice) {
    add_device_tensor(info, tensor);
  } else {
    add_host_tensor(info, tensor);
  }
}

void Signature::set_device(c10::DeviceIndex device, const ArgInfo& info) {
  TORCH_CHECK(
      device_ < 0 || device_ == device || tensors_.empty(),
      "Expected all tensors to be on the same device, but found at least two devices, tpu:", static_cast<int>(device_),
      " and tpu:", static_cast<int>(device), "! (argument '", info.name, "' of ", op_.name, ")");
  device_ = device;
}

int32_t Signature::slot_of(const at::Tensor& tensor) const {
  const auto* storage = tensor.storage().unsafeGetStorageImpl();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].tensor->storage().unsafeGetStorageImpl() == storage) {
      return static_cast<int32_t>(i);
    }
  }
  return static_cast<int32_t>(tensors_.size());
}

void Signature::add_device_tensor(const ArgInfo& info, const at::Tensor& tensor) {
  auto& state = state_of(tensor);
  set_device(state.device, info);
  const auto dtype = tensor.scalar_type();
  has_64bit_float_ = has_64bit_float_ || is_64bit_float(dtype);
  has_float_ = has_float_ || c10::isFloatingType(dtype) || c10::isComplexType(dtype);
  const auto itemsize = static_cast<int64_t>(tensor.element_size());
  const auto nbytes = static_cast<int64_t>(held_bytes(tensor, state.value));
  TensorArg arg{};
  arg.tensor = &tensor;
  arg.value = state.value;
  arg.storage_numel = nbytes / itemsize;
  arg.written = info.written;
  arg.slot = op_.writes ? slot_of(tensor) : static_cast<int32_t>(tensors_.size());
  // The view must not be a run-time choice: a tensor that spans its storage has offset 0 whatever its strides.
  const bool contiguous = tensor.is_contiguous();
  const int64_t span = contiguous ? tensor.numel() : span_of(tensor);
  const bool whole = span == arg.storage_numel && nbytes % itemsize == 0;
  TORCH_CHECK(span == 0 || tensor.storage_offset() + span <= arg.storage_numel, op_.name, ": argument '", info.name,
              "' with sizes ", tensor.sizes(), ", strides ", tensor.strides(), " and offset ", tensor.storage_offset(),
              " reaches beyond its storage of ", nbytes, " bytes");
  arg.offset_word = whole || span == 0 ? -1 : 0;

  const auto sizes = tensor.sizes();
  const auto* layout = arg.value ? arg.value->layout() : nullptr;
  key_.push_back(tag(kTagTensor, static_cast<uint64_t>(dtype) | sizes.size() << 8 | uint64_t{contiguous} << 16 |
                                     uint64_t{whole} << 17 | uint64_t{layout == nullptr} << 18 |
                                     static_cast<uint64_t>(arg.slot) << 24));
  key_.append(sizes.begin(), sizes.end());
  if (!contiguous) {
    key_.append(tensor.strides().begin(), tensor.strides().end());
  }
  if (layout != nullptr) {
    local_words_.push_back(static_cast<uint32_t>(key_.size()));
  }
  key_.push_back(layout != nullptr ? layout->id : static_cast<uint64_t>(nbytes));
  tensors_.push_back(std::move(arg));
}

void Signature::add_host_tensor(const ArgInfo& info, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.device().is_cpu() && !info.written && (tensor.dim() == 0 || op_.rule.host_tensors),
              "Expected all tensors to be on the same device, but found at least two devices, tpu:",
              static_cast<int>(device_ < 0 ? current_device() : device_), " and ", tensor.device(), "! (argument '",
              info.name, "' of ", op_.name, ")");
  if (tensor.dim() == 0 && tensor.layout() == at::kStrided) {
    auto scalar = read_host_scalar(tensor);
    key_.push_back(tag(kTagHostScalar, static_cast<uint64_t>(scalar.dtype) | uint64_t{scalar.wrapped} << 8 |
                                           uint64_t{is_long(scalar)} << 9));
    scalars_.push_back(scalar);
    return;
  }
  const auto device = c10::Device(kDevice, device_ < 0 ? current_device() : device_);
  uploads_.push_back(std::make_unique<at::Tensor>(at::_to_copy(tensor, tensor.options().device(device))));
  add_device_tensor(info, *uploads_.back());
}

void Signature::add_scalar(const ArgInfo& info, const c10::IValue& value) {
  if (value.isNone()) {
    key_.push_back(kTagNone);
    return;
  }
  if (info.bounds.has_value()) {
    check_bounds(*info.bounds, value.toScalar());
  }
  if (const auto place = find_usual(info, value); place.has_value()) {
    key_.push_back(tag(kTagUsual, *place));
    return;
  }
  auto scalar = read_scalar(value.toScalar());
  key_.push_back(tag(kTagScalar, static_cast<uint64_t>(scalar.kind) | uint64_t{is_long(scalar)} << 8));
  scalars_.push_back(scalar);
}

void Signature::add_static(const c10::IValue& value) {
  if (value.isNone()) {
    key_.push_back(kTagNone);
  } else if (value.isInt()) {
    key_.push_back(kTagInt);
    key_.push_back(static_cast<uint64_t>(value.toInt()));
  } else if (value.isBool()) {
    key_.push_back(tag(kTagInt, 1 + uint64_t{value.toBool()}));
  } else if (value.isDouble()) {
    key_.push_back(kTagFloat);
    key_.push_back(bits_of(value.toDouble()));
  } else if (value.isComplexDouble()) {
    key_.push_back(tag(kTagFloat, 1));
    key_.push_back(bits_of(value.toComplexDouble().real()));
    key_.push_back(bits_of(value.toComplexDouble().imag()));
  } else if (value.isString()) {
    const auto& text = value.toStringRef();
    key_.push_back(tag(kTagString, text.size()));
    for (size_t i = 0; i < text.size(); i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, text.data() + i, std::min<size_t>(8, text.size() - i));
      key_.push_back(word);
    }
  } else if (value.isList()) {
    if (value.isIntList()) {
      const auto list = value.toDimVector();
      key_.push_back(tag(kTagList, list.size()));
      key_.append(list.begin(), list.end());
      return;
    }
    const auto list = value.toListRef();
    key_.push_back(tag(kTagList, list.size()));
    for (const auto& element : list) {
      add_static(element);
    }
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(false, op_.name, ": an argument of type ", value.tagKind(), " is not supported");
  }
}

void Signature::check_order(at::ArrayRef<c10::IValue> args) const {
  const auto& order = *op_.rule.order;
  std::optional<c10::Scalar> low;
  std::optional<c10::Scalar> high;
  for (size_t i = 0; i < args.size(); ++i) {
    const auto& name = op_.args[i].name;
    if (args[i].isScalar() && name == order.low) {
      low = args[i].toScalar();
    }
    if (args[i].isScalar() && name == order.high) {
      high = args[i].toScalar();
    }
  }
  if (low.has_value() && high.has_value()) {
    const auto a = low->toDouble();
    const auto b = high->toDouble();
    TORCH_CHECK(order.strict ? a < b : a <= b, order.words, ": ", order.low, "=", a, ", ", order.high, "=", b);
  }
}

void Signature::add_range_length(at::ArrayRef<c10::IValue> args) {
  c10::Scalar start = 0;
  c10::Scalar end = 0;
  c10::Scalar step = 1;
  for (size_t i = 0; i < args.size(); ++i) {
    if (op_.args[i].kind == ArgKind::kScalar && args[i].isScalar()) {
      const auto& name = op_.args[i].name;
      (name == "start" ? start : name == "step" ? step : end) = args[i].toScalar();
    }
  }
  const bool exact = start.isIntegral(true) && end.isIntegral(true) && step.isIntegral(true);
  if (exact && step.toLong() != 0) {
    const auto distance = end.toLong() - start.toLong();
    lengths_ = {distance / step.toLong(), distance % step.toLong() != 0};
  } else if (!exact && step.toDouble() != 0) {
    const auto ratio = (end.toDouble() - start.toDouble()) / step.toDouble();
    lengths_ = {static_cast<int64_t>(std::floor(ratio)), static_cast<int64_t>(std::ceil(ratio))};
  }
  key_.append(lengths_.begin(), lengths_.end());
}

void Signature::push_words(uint64_t bits, int count) {
  pack_.push_back(static_cast<uint32_t>(bits));
  if (count == 2) {
    pack_.push_back(static_cast<uint32_t>(bits >> 32));
  }
}

bool Signature::wide() const {
  return op_.rule.wide || has_64bit_float_ || tensors_.empty() ||
         (!has_float_ && c10::get_default_dtype_as_scalartype() == at::kDouble);
}

void Signature::pack_scalars() {
  const bool wide = this->wide();
  for (auto& scalar : scalars_) {
    const bool own_64bit = scalar.from_tensor && !scalar.wrapped && is_64bit_float(scalar.dtype);
    const bool as_float = scalar.kind == ScalarKind::kFloat || scalar.kind == ScalarKind::kComplex;
    scalar.word = static_cast<int32_t>(pack_.size());
    if (!as_float) {
      scalar.packed = is_long(scalar) ? at::kLong : at::kInt;
      push_words(static_cast<uint64_t>(scalar.integer), is_long(scalar) ? 2 : 1);
      continue;
    }
    scalar.packed = wide || own_64bit ? at::kDouble : at::kFloat;
    for (const double part : {scalar.real, scalar.imaginary}) {
      scalar.packed == at::kDouble ? push_words(bits_of(part), 2) : push_words(bits_of(static_cast<float>(part)), 1);
      if (scalar.kind == ScalarKind::kFloat) {
        break;
      }
    }
  }
  for (auto& arg : tensors_) {
    if (arg.offset_word >= 0) {
      arg.offset_word = static_cast<int32_t>(pack_.size());
      push_words(static_cast<uint64_t>(arg.tensor->storage_offset()), arg.storage_numel < (int64_t{1} << 31) ? 1 : 2);
    }
  }
}

std::string Signature::stable_key() const {
  auto words = key_;
  words[0] = words[0] >> 32 << 32; // without the op's id
  for (auto position : local_words_) {
    words[position] = 0;
  }
  for (const auto& arg : tensors_) {
    if (arg.value) {
      const auto* layout = arg.value->layout();
      words.push_back(static_cast<uint64_t>(layout->dtype) | layout->shape.size() << 8);
      words.append(layout->shape.begin(), layout->shape.end());
      words.push_back(static_cast<uint64_t>(held_bytes(*arg.tensor, arg.value)));
    }
  }
  return op_.name + '\0' + std::string(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(uint64_t));
}

void Signature::draw_random_state() {
  if (random_word_ < 0) {
    return;
  }
  const auto state = next_random_state(generator_, device_, op_.rule.draws);
  const uint64_t words[] = {state.seed, state.offset};
  std::memcpy(pack_.data() + random_word_, words, sizeof words);
}

} // namespace torus
