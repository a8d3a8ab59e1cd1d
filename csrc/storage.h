// Storages of the device: what PyTorch tensors share. A storage holds one value; a write replaces the value.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include "value.h"

namespace torus {

constexpr auto kDevice = c10::DeviceType::PrivateUse1;
constexpr auto kDispatchKey = c10::DispatchKey::PrivateUse1;

// The context of a storage's DataPtr. `value` is null while nothing has been written. Guarded by the GIL.
struct StorageState {
  StorageState(void* base, size_t nbytes, c10::DeviceIndex index);
  ~StorageState();
  StorageState(const StorageState&) = delete;
  StorageState& operator=(const StorageState&) = delete;

  ValuePtr value;
  c10::DeviceIndex device;
  // The addresses that the storage was given, and its place among the live ones.
  uintptr_t begin;
  uintptr_t end;
  StorageState* previous = nullptr;
  StorageState* next = nullptr;
};

// Allocates addresses only: memory belongs to the values.
c10::Allocator* allocator();
void register_allocator();

c10::DataPtr allocate_on(size_t nbytes, c10::DeviceIndex device);
StorageState& state_of(const c10::StorageImpl& storage);
StorageState& state_of(const at::TensorBase& tensor);

// Bytes of a storage that holds `value`: more than its size where that is the front of a bucket (see sized.cpp).
size_t held_bytes(const at::TensorBase& tensor, const ValuePtr& value);

// The device of an address in a live storage; -1 for any other address.
c10::DeviceIndex device_of_address(const void* address);

std::vector<int64_t> contiguous_strides(c10::IntArrayRef sizes);

// A new tensor over a new storage that holds `value`.
at::Tensor make_tensor(ValuePtr value, c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides);

} // namespace torus
