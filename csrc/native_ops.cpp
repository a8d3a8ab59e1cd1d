#include "native_ops.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DefaultDtype.h>
#include <torch/library.h>

#include "device.h"
#include "limit.h"
#include "origins.h"
#include "runtime_seam.h"
#include "storage.h"

namespace torus {
namespace {

// The allocator takes the current device, so an explicit one is made current for the call.
class DeviceScope {
 public:
  explicit DeviceScope(std::optional<c10::Device> device)
      : previous_(device.has_value() ? exchange_device(resolve_device(*device)) : current_device()) {}
  ~DeviceScope() {
    exchange_device(previous_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  c10::DeviceIndex previous_;
};

void check_layout(std::optional<c10::Layout> layout) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !layout.has_value() || *layout == c10::kStrided, "the tpu device stores dense (strided) tensors only, not ",
      layout.value_or(c10::kStrided), "; keep the tensor on the CPU, or convert it with .to_dense()");
}

at::Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                 std::optional<c10::Device> device, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  check_layout(layout);
  DeviceScope scope(device);
  return at::Tensor(at::detail::empty_generic(size, allocator(), c10::DispatchKeySet(kDispatchKey),
                                              dtype.value_or(c10::get_default_dtype_as_scalartype()), format));
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout> layout, std::optional<c10::Device> device, std::optional<bool>) {
  check_layout(layout);
  DeviceScope scope(device);
  return at::Tensor(at::detail::empty_strided_generic(size, stride, allocator(), c10::DispatchKeySet(kDispatchKey),
                                                      dtype.value_or(c10::get_default_dtype_as_scalartype())));
}

void grow_storage(const at::Tensor& self, size_t nbytes) {
  auto* storage = self.storage().unsafeGetStorageImpl();
  if (storage->nbytes() < nbytes) {
    resize_storage(*storage, nbytes);
  }
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size, std::optional<c10::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  if (self.sizes() == size && !format.has_value()) {
    return self;
  }
  if (self.sizes() != size) {
    impl->set_sizes_contiguous(size);
  }
  if (format.has_value()) {
    TORCH_CHECK(*format != c10::MemoryFormat::Preserve, "Unsupported memory format", *format);
    impl->empty_tensor_restride(*format);
  }
  const auto elements = impl->storage_offset() + impl->numel();
  grow_storage(self, impl->numel() == 0 ? 0 : static_cast<size_t>(elements) * self.element_size());
  return self;
}

at::Tensor& set_strided(at::Tensor& self, const c10::Storage& source, int64_t offset, c10::IntArrayRef size,
                        c10::IntArrayRef stride) {
  at::native::checkSetStorage(self, source, offset, size, stride);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (stride.data() == nullptr) {
    impl->set_sizes_contiguous(size);
  } else {
    impl->set_sizes_and_strides(size, stride);
  }
  const auto needed = at::detail::computeStorageNbytes(impl->sizes(), impl->strides(), self.element_size(),
                                                       static_cast<size_t>(offset));
  grow_storage(self, needed);
  return self;
}

at::Tensor& set_source_storage(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<int64_t>(source.nbytes() / self.element_size());
  return set_strided(self, source, 0, {elements}, {});
}

at::Tensor& set_source_storage_offset(at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef size,
                                      c10::IntArrayRef stride) {
  return set_strided(self, source, offset, size, stride);
}

at::Tensor& set_source_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) {
    return self;
  }
  return set_strided(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  auto fresh = empty({0}, self.scalar_type(), std::nullopt, self.device(), std::nullopt, std::nullopt);
  return set_strided(self, fresh.storage(), 0, {0}, {});
}

// Module.to keeps its Parameter objects (and with them ties and optimizers) when the two kinds of tensor may be swapped
// in place.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto dense = [](const at::Tensor& t) {
    return t.layout() == c10::kStrided && !t.is_quantized() && (t.device().type() == kDevice || t.device().is_cpu());
  };
  return dense(self) && dense(from);
}

bool is_pinned(const at::Tensor&, std::optional<c10::Device>) {
  return false;
}

bool is_set_to(const at::Tensor& self, const at::Tensor& other) {
  return self.is_alias_of(other) && self.storage_offset() == other.storage_offset() && self.sizes() == other.sizes() &&
         self.strides() == other.strides();
}

// The runtime keeps what its programs use; there is nothing to record.
void record_stream(at::Tensor&, c10::Stream) {}

} // namespace

void resize_storage(c10::StorageImpl& storage, size_t nbytes) {
  GilGuard gil;
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  auto& state = state_of(storage);
  auto pointer = allocate_on(nbytes, state.device);
  // A copy: another thread may write the storage while Python works.
  if (const auto value = state.value; value && nbytes > 0) {
    auto bytes = checked(PyLong_FromSize_t(nbytes));
    auto device = checked(PyLong_FromLong(state.device));
    auto* old = value->array();
    admit(state.device, static_cast<int64_t>(nbytes), "a storage that grows");
    auto array = call_seam("resize_bytes", {old, bytes.get(), device.get()});
    auto resized = c10::make_intrusive<Value>(array.release(), intern_layout(at::kByte, {static_cast<int64_t>(nbytes)}),
                                              state.device);
    note_origin(*resized, "a storage that grew");
    static_cast<StorageState*>(pointer.get_context())->value = std::move(resized);
  }
  storage.set_data_ptr_noswap(std::move(pointer));
  storage.set_nbytes(nbytes);
}

} // namespace torus

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &torus::empty);
  m.impl("empty_strided", &torus::empty_strided);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("resize_", &torus::resize_);
  m.impl("set_.source_Storage", &torus::set_source_storage);
  m.impl("set_.source_Storage_storage_offset", &torus::set_source_storage_offset);
  m.impl("set_.source_Tensor", &torus::set_source_tensor);
  m.impl("set_", &torus::set_nothing);
  m.impl("_has_compatible_shallow_copy_type", &torus::has_compatible_shallow_copy_type);
  m.impl("is_set_to", &torus::is_set_to);
  m.impl("record_stream", &torus::record_stream);
  m.impl("is_pinned", &torus::is_pinned);
}

// With autograd's key in the tensors, the question must be answered there too: it has no gradient.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", &torus::has_compatible_shallow_copy_type);
}
