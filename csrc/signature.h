// The signature of a call: everything that decides its program, and nothing else. Scalar values and storage offsets are
// not in it; they are packed into one small array that the program takes as its last argument.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <optional>

#include "op.h"
#include "storage.h"

namespace torus {

using Key = c10::SmallVector<uint64_t, 96>;

uint64_t hash_key(const Key& key);

struct TensorArg {
  const at::Tensor* tensor;
  // The storage's value, held for the time of the call; null while nothing has been written.
  ValuePtr value;
  int64_t storage_numel;
  // The place of the offset in the pack, or -1 when the tensor spans its storage and so starts at 0.
  int32_t offset_word;
  // The first tensor of this call that has the same storage.
  int32_t slot;
  bool written;
};

enum class ScalarKind : uint8_t { kBool, kInt, kFloat, kComplex };

struct ScalarArg {
  ScalarKind kind;
  bool from_tensor;      // a CPU tensor without dimensions: it keeps its own dtype
  bool wrapped;          // a Python number
  c10::ScalarType dtype; // of the CPU tensor
  int64_t integer;
  double real;
  double imaginary;
  // How it is packed, and where.
  c10::ScalarType packed;
  int32_t word;
};

// One call, taken apart. Needs the GIL, because it reads the values of storages.
class Signature {
 public:
  // Throws on tensors of several devices.
  Signature(const OpInfo& op, at::ArrayRef<c10::IValue> args);

  const OpInfo& op() const {
    return op_;
  }
  const Key& key() const {
    return key_;
  }
  c10::DeviceIndex device() const {
    return device_;
  }
  const c10::SmallVector<TensorArg, 6>& tensors() const {
    return tensors_;
  }
  const c10::SmallVector<ScalarArg, 4>& scalars() const {
    return scalars_;
  }
  // Whether scalars keep 64 bits although no tensor has them.
  bool wide() const;
  const c10::SmallVector<uint32_t, 16>& pack() const {
    return pack_;
  }
  // Numbers beside the arguments that the program depends on.
  const c10::SmallVector<int64_t, 2>& lengths() const {
    return lengths_;
  }
  int32_t random_word() const {
    return random_word_;
  }

  // The same bytes for the same signature in every process: the key, with names and contents where it has numbers of
  // this process.
  std::string stable_key() const;

  // Fills in what changes from call to call without changing the program: the random state.
  void draw_random_state();

 private:
  void add(const ArgInfo& info, const c10::IValue& value);
  void add_tensor(const ArgInfo& info, const c10::IValue& value);
  void add_device_tensor(const ArgInfo& info, const at::Tensor& tensor);
  void add_host_tensor(const ArgInfo& info, const at::Tensor& tensor);
  void add_scalar(const ArgInfo& info, const c10::IValue& value);
  void add_static(const c10::IValue& value);
  void check_order(at::ArrayRef<c10::IValue> args) const;
  void add_range_length(at::ArrayRef<c10::IValue> args);
  void pack_scalars();
  void push_words(uint64_t bits, int count);
  int32_t slot_of(const at::Tensor& tensor) const;
  void set_device(c10::DeviceIndex device, const ArgInfo& info);

  const OpInfo& op_;
  Key key_;
  c10::SmallVector<TensorArg, 6> tensors_;
  c10::SmallVector<ScalarArg, 4> scalars_;
  c10::SmallVector<uint32_t, 16> pack_;
  c10::SmallVector<int64_t, 2> lengths_;
  // The words of the key that are numbers of this process: ids of layouts.
  c10::SmallVector<uint32_t, 6> local_words_;
  // Device copies of CPU tensors that the op accepts (indices).
  std::vector<std::unique_ptr<at::Tensor>> uploads_;
  std::optional<at::Generator> generator_;
  c10::DeviceIndex device_ = -1;
  int32_t random_word_ = -1;
  bool has_64bit_float_ = false;
  bool has_float_ = false;
};

// Precision of float32 matmul and convolution: 0 "default", 1 "high", 2 "highest", and what Python has for higher
// numbers; -1 follows torch.set_float32_matmul_precision, which has the first three.
int precision();
void set_precision(int value);
// What PyTorch's setting allows is done, in passes, where this device has no unit for them: Python's numbers 3 and 4.
void emulate_allowed_passes(bool value);

} // namespace torus
