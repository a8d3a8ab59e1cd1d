#include "storage.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "device.h"
#include "runtime_seam.h"

namespace torus {
namespace {

constexpr size_t kAlignment = 64;

// Addresses come from a reserved region without access rights, so that host code that follows one faults at once.
class AddressSpace {
 public:
  AddressSpace() {
    for (size_t size = size_t{1} << 44; size >= (size_t{1} << 32); size >>= 1) {
      void* base = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (base != MAP_FAILED) {
        base_ = reinterpret_cast<uintptr_t>(base);
        size_ = size;
        return;
      }
    }
    TORCH_CHECK(false, "torus could not reserve a range of addresses for its storages (mmap failed)");
  }

  // Unique until the region has been walked through once (16 TiB of tensors), then reused from the start.
  void* take(size_t nbytes) {
    const size_t step = (nbytes / kAlignment + 1) * kAlignment;
    TORCH_CHECK(step <= size_, "a tensor of ", nbytes, " bytes is larger than the address range of the tpu device");
    size_t offset = next_.fetch_add(step, std::memory_order_relaxed) % size_;
    if (offset + step > size_) {
      offset = next_.fetch_add(size_ - offset + step, std::memory_order_relaxed) % size_;
      offset = offset + step > size_ ? 0 : offset;
    }
    return reinterpret_cast<void*>(base_ + offset);
  }

  bool contains(const void* address) const {
    const auto a = reinterpret_cast<uintptr_t>(address);
    return a >= base_ && a < base_ + size_;
  }

 private:
  uintptr_t base_ = 0;
  size_t size_ = 0;
  std::atomic<size_t> next_{0};
};

AddressSpace& addresses() {
  static auto* space = new AddressSpace();
  return *space;
}

// Live storages, so that one can be found by its address: PyTorch wraps addresses when it pickles a storage.
struct LiveStates {
  std::mutex mutex;
  StorageState* first = nullptr;
};

LiveStates& live_states() {
  static auto* states = new LiveStates();
  return *states;
}

StorageState* find_state(const void* address) {
  const auto a = reinterpret_cast<uintptr_t>(address);
  auto& live = live_states();
  std::lock_guard<std::mutex> lock(live.mutex);
  for (auto* state = live.first; state != nullptr; state = state->next) {
    if (a >= state->begin && a < state->end) {
      return state;
    }
  }
  return nullptr;
}

void delete_state(void* context) {
  delete static_cast<StorageState*>(context);
}

c10::CachingAllocator::Stat as_stat(int64_t current, int64_t peak, int64_t allocated, int64_t freed) {
  c10::CachingAllocator::Stat stat;
  stat.current = current;
  stat.peak = peak;
  stat.allocated = allocated;
  stat.freed = freed;
  return stat;
}

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    return allocate_on(nbytes, current_device());
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return nullptr; // raw_allocate has no meaning here: an address is not memory
  }
  void copy_data(void*, const void*, size_t) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "raw copies between addresses do not exist on the tpu device; copy tensors");
  }
  bool initialized() override {
    return true;
  }
  void emptyCache(c10::MempoolId_t) override {
    GilGuard gil;
    drain_garbage();
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const auto stats = memory_stats(device);
    c10::CachingDeviceAllocator::DeviceStats result;
    const auto bytes = as_stat(stats.current, stats.peak, stats.allocated, stats.freed);
    const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    result.allocated_bytes[all] = bytes;
    result.reserved_bytes[all] = bytes;
    result.active_bytes[all] = bytes;
    result.requested_bytes[all] = bytes;
    result.allocation[all] = as_stat(stats.count, stats.count, stats.count, 0);
    return result;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    reset_accumulated_memory(device);
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    reset_peak_memory(device);
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return memory_info(device);
  }
};

} // namespace

c10::Allocator* allocator() {
  static auto* instance = new Allocator();
  return instance;
}

void register_allocator() {
  c10::SetAllocator(kDevice, allocator());
}

StorageState::StorageState(void* base, size_t nbytes, c10::DeviceIndex index)
    : device(index), begin(reinterpret_cast<uintptr_t>(base)), end(begin + nbytes + 1) {
  auto& live = live_states();
  std::lock_guard<std::mutex> lock(live.mutex);
  next = live.first;
  if (next != nullptr) {
    next->previous = this;
  }
  live.first = this;
}

StorageState::~StorageState() {
  auto& live = live_states();
  std::lock_guard<std::mutex> lock(live.mutex);
  (previous != nullptr ? previous->next : live.first) = next;
  if (next != nullptr) {
    next->previous = previous;
  }
}

c10::DataPtr allocate_on(size_t nbytes, c10::DeviceIndex device) {
  auto* address = addresses().take(nbytes);
  return {address, new StorageState(address, nbytes, device), &delete_state, c10::Device(kDevice, device)};
}

StorageState& state_of(const c10::StorageImpl& storage) {
  const auto& pointer = storage.data_ptr();
  if (pointer.get_deleter() == &delete_state) {
    return *static_cast<StorageState*>(pointer.get_context());
  }
  auto* state = find_state(pointer.get());
  TORCH_CHECK(state != nullptr && state->begin == reinterpret_cast<uintptr_t>(pointer.get()), "this storage on ",
              pointer.device(), " was not made by torus; copy the tensor with .to(\"tpu\")");
  return *state;
}

StorageState& state_of(const at::TensorBase& tensor) {
  return state_of(*tensor.storage().unsafeGetStorageImpl());
}

c10::DeviceIndex device_of_address(const void* address) {
  const auto* state = addresses().contains(address) ? find_state(address) : nullptr;
  return state != nullptr ? state->device : c10::DeviceIndex{-1};
}

std::vector<int64_t> contiguous_strides(c10::IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

size_t held_bytes(const at::TensorBase& tensor, const ValuePtr& value) {
  return std::max(tensor.storage().nbytes(), value ? static_cast<size_t>(value->layout()->nbytes()) : 0);
}

at::Tensor make_tensor(ValuePtr value, c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  const auto nbytes = static_cast<size_t>(value->layout()->nbytes());
  auto pointer = allocate_on(nbytes, value->device());
  static_cast<StorageState*>(pointer.get_context())->value = std::move(value);
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes, std::move(pointer),
                                                       allocator(), /*resizable=*/true);
  auto tensor = at::detail::make_tensor_base<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(kDispatchKey), c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return at::Tensor(std::move(tensor));
}

} // namespace torus
