#include "device.h"

#include <c10/util/Exception.h>

#include <atomic>

namespace torus {
namespace {

std::atomic<int> devices_there{1};
thread_local c10::DeviceIndex current = 0;

void check(c10::DeviceIndex index) {
  TORCH_CHECK(index >= 0 && index < device_count(), "tpu:", static_cast<int>(index),
              " does not exist: this process has ", static_cast<int>(device_count()),
              " tpu device(s). On the host platform TORUS_DEVICE_COUNT sets how many there are.");
}

} // namespace

c10::DeviceIndex device_count() {
  return static_cast<c10::DeviceIndex>(devices_there.load(std::memory_order_relaxed));
}

void set_device_count(c10::DeviceIndex value) {
  devices_there.store(value, std::memory_order_relaxed);
}

c10::DeviceIndex current_device() {
  return current;
}

void set_current_device(c10::DeviceIndex index) {
  check(index);
  current = index;
}

c10::DeviceIndex exchange_device(c10::DeviceIndex index) {
  const auto previous = current;
  if (index >= 0) {
    set_current_device(index);
  }
  return previous;
}

c10::DeviceIndex resolve_device(c10::Device device) {
  if (!device.has_index()) {
    return current;
  }
  check(device.index());
  return device.index();
}

} // namespace torus
