// Copies: between storages of one device, across devices, and between host and device.
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/neg.h>
#include <c10/core/Scalar.h>
#include <torch/library.h>

#include "checks.h"
#include "dispatch.h"
#include "limit.h"
#include "origins.h"
#include "runtime_seam.h"
#include "storage.h"
#include "trace.h"

namespace torus {
namespace {

constexpr const char* kFromHost = "a copy from the host";
constexpr const char* kFromDevice = "a copy from another device";

bool is_device(const at::Tensor& tensor) {
  return tensor.device().type() == kDevice;
}

// The tensor covers its whole storage, each element once.
bool covers_storage(const at::Tensor& tensor) {
  GilGuard gil;
  return tensor.is_non_overlapping_and_dense() &&
         static_cast<size_t>(tensor.numel()) * tensor.element_size() == held_bytes(tensor, state_of(tensor).value);
}

bool same_memory_order(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && (a.strides() == b.strides() || (a.is_contiguous() && b.is_contiguous()));
}

// Sizes in the order of memory: the shape of the array behind a dense tensor.
std::vector<int64_t> memory_shape(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) {
    return tensor.sizes().vec();
  }
  std::vector<int64_t> order(static_cast<size_t>(tensor.dim()));
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = static_cast<int64_t>(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return tensor.stride(a) > tensor.stride(b) ||
           (tensor.stride(a) == tensor.stride(b) && tensor.size(a) > tensor.size(b));
  });
  std::vector<int64_t> shape;
  for (auto dim : order) {
    shape.push_back(tensor.size(dim));
  }
  return shape;
}

void copy_program(const at::Tensor& source, const at::Tensor& target) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_copy_from", "");
  torch::jit::Stack stack{source, target, false};
  run(copy_op(), op, &stack);
}

void copy_on_device(const at::Tensor& source, const at::Tensor& target) {
  if (source.scalar_type() == target.scalar_type() && same_memory_order(source, target) && covers_storage(source) &&
      covers_storage(target)) {
    GilGuard gil; // values are immutable: the copy is a second owner
    auto& from = state_of(source);
    // Nothing was ever written to the source: the copy is as undefined as it is, and stays unwritten too.
    state_of(target).value = from.value;
    return;
  }
  copy_program(source, target);
}

at::Tensor to_device(const at::Tensor& source, c10::DeviceIndex index) {
  GilGuard gil;
  const auto value = state_of(source).value; // another thread may write the storage while this one copies
  auto result =
      at::empty_strided(source.sizes(), source.strides(), source.options().device(c10::Device(kDevice, index)));
  if (!value) {
    return result;
  }
  const CauseScope cause(Cause::kOtherDevice);
  auto device = checked(PyLong_FromLong(index));
  auto* computed = value->array();
  admit(index, value->layout()->nbytes(), kFromDevice);
  auto array = call_seam("copy_to_device", {computed, device.get()});
  auto copy = c10::make_intrusive<Value>(array.release(), value->layout(), index);
  note_origin(*copy, kFromDevice);
  state_of(result).value = std::move(copy);
  return result;
}

void copy_across_devices(const at::Tensor& source, const at::Tensor& target) {
  const auto dense = covers_storage(source) ? source : source.clone();
  copy_on_device(to_device(dense, target.device().index()), target);
}

// The bytes of a dense CPU tensor as the new value of a whole storage. `owned` may be kept by the device.
void upload(const at::Tensor& owned, const at::Tensor& target) {
  GilGuard gil;
  drain_garbage();
  auto& state = state_of(target);
  const auto shape = memory_shape(target);
  // In the order of memory the tensor is contiguous.
  const auto* layout = intern_layout(target.scalar_type(), shape);
  admit(state.device, layout->nbytes(), kFromHost);
  auto in_memory_order = owned.as_strided(shape, torus::contiguous_strides(shape));
  auto array = array_from_host(in_memory_order, state.device);
  counters().host_writes.fetch_add(1, std::memory_order_relaxed);
  auto value = c10::make_intrusive<Value>(array.release(), layout, state.device);
  note_origin(*value, kFromHost);
  state.value = std::move(value);
}

void copy_from_host(const at::Tensor& source, const at::Tensor& target) {
  const bool direct = covers_storage(target);
  const auto strides = direct ? target.strides().vec() : torus::contiguous_strides(target.sizes());
  // Always a copy of our own: what the user does to the source afterwards must not show.
  auto staged = at::empty_strided(target.sizes(), strides, target.options().device(c10::DeviceType::CPU));
  staged.copy_(source);
  if (direct) {
    upload(staged, target);
    return;
  }
  auto whole = at::empty_strided(target.sizes(), strides, target.options());
  upload(staged, whole);
  copy_program(whole, target);
}

// A CPU tensor with the values of `source`; shares memory with the device where that is possible: not to be written to.
at::Tensor on_host(const at::Tensor& source) {
  GilGuard gil;
  drain_garbage();
  settle_checks(true);
  const auto value = state_of(source).value; // another thread may write the storage while this one waits
  counters().host_reads.fetch_add(1, std::memory_order_relaxed);
  if (!value) {
    return at::empty_strided(source.sizes(), source.strides(), source.options().device(c10::DeviceType::CPU)).zero_();
  }
  const CauseScope cause(Cause::kHostRead);
  auto flat = host_view(*value);
  if (flat.scalar_type() != source.scalar_type()) {
    flat = flat.view(at::kByte).view(source.scalar_type());
  }
  return flat.as_strided(source.sizes(), source.strides(), source.storage_offset());
}

void copy_to_host(const at::Tensor& source, const at::Tensor& target) {
  at::Tensor(target).copy_(on_host(source));
}

// The same elements without the bits that say "conjugated" and "negated".
at::Tensor raw(const at::Tensor& tensor) {
  auto result = tensor.is_conj() ? at::_conj(tensor) : tensor;
  return result.is_neg() ? at::_neg_view(result) : result;
}

// Two names of the same elements: there is nothing to copy, even where elements share memory.
bool same_view(const at::Tensor& a, const at::Tensor& b) {
  return a.is_same(b) ||
         (a.has_storage() && b.has_storage() && a.is_alias_of(b) && a.storage_offset() == b.storage_offset() &&
          a.sizes() == b.sizes() && a.strides() == b.strides() && a.scalar_type() == b.scalar_type() &&
          a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg());
}

void copy_raw(const at::Tensor& self, const at::Tensor& dst) {
  if (is_device(self) && is_device(dst)) {
    self.device() == dst.device() ? copy_on_device(self, dst) : copy_across_devices(self, dst);
  } else if (is_device(dst)) {
    copy_from_host(self, dst);
  } else {
    copy_to_host(self, dst);
  }
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool) {
  if (same_view(self, dst)) {
    return dst;
  }
  at::assert_no_internal_overlap(dst);
  if (is_device(self)) {
    at::assert_no_partial_overlap(dst, self);
  }
  if (self.sizes() != dst.sizes()) {
    return copy_from(self.expand(dst.sizes()), dst, false);
  }
  if (self.numel() == 0) {
    return dst;
  }
  // Programs know nothing of the bits: copy what is stored, then settle the difference.
  auto target = raw(dst);
  copy_raw(raw(self), target);
  if (self.is_conj() != dst.is_conj()) {
    target.conj_physical_();
  }
  if (self.is_neg() != dst.is_neg()) {
    target.neg_();
  }
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  if (self.sizes() != dst.sizes()) {
    dst.resize_(self.sizes());
  }
  return copy_from(self, dst, false);
}

c10::Scalar local_scalar_dense(const at::Tensor& self) {
  return on_host(self).item();
}

} // namespace

const OpInfo& copy_op() {
  static auto* info = [] {
    RuleTraits rule;
    rule.name = "aten::_copy_from";
    rule.mutates = {"dst"};
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_copy_from", "");
    return new OpInfo(op.schema(), OpForm::kInPlace, rule);
  }();
  return *info;
}

} // namespace torus

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", &torus::copy_from);
  m.impl("_copy_from_and_resize", &torus::copy_from_and_resize);
  m.impl("_local_scalar_dense", &torus::local_scalar_dense);
}

// The kernel above deals with these bits itself; PyTorch's own way would clone, and so copy, without end.
#define TORUS_COPY_SEES_BITS(key)                                           \
  TORCH_LIBRARY_IMPL(aten, key, m) {                                        \
    m.impl("_copy_from", torch::CppFunction::makeFallthrough());            \
    m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough()); \
  }
TORUS_COPY_SEES_BITS(Conjugate)
TORUS_COPY_SEES_BITS(Negative)
TORUS_COPY_SEES_BITS(ZeroTensor)
