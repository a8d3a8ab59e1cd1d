// Pinned memory: ordinary host memory, since transfers read any. PyTorch asks for an allocator with these names.
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CPUAllocator.h>

namespace torus {
namespace {

class HostAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    return c10::GetCPUAllocator()->allocate(nbytes);
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return c10::GetCPUAllocator()->raw_deleter();
  }
  void copy_data(void* target, const void* source, size_t count) const override {
    default_copy_data(target, source, count);
  }
  bool record_event(void*, void*, c10::Stream) override {
    return true; // a transfer has copied what it needs before it returns
  }
  void empty_cache() override {}
  at::HostStats get_stats() override {
    return {};
  }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

// Lives as long as the process: memory may be freed after static objects are gone.
HostAllocator* host_allocator() {
  static auto* instance = new HostAllocator();
  return instance;
}

const at::HostAllocatorRegistry<c10::DeviceType::PrivateUse1> host_registration(host_allocator());

} // namespace
} // namespace torus
