// The current device of a thread, streams, and how many devices there are.
#pragma once

#include <c10/core/Device.h>

#include <utility>

namespace torus {

constexpr int kMaxDevices = 128;

c10::DeviceIndex device_count();
void set_device_count(c10::DeviceIndex count);
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex index);
c10::DeviceIndex exchange_device(c10::DeviceIndex index);

// The index that a `tpu` device without one means; raises for an index that does not exist.
c10::DeviceIndex resolve_device(c10::Device device);

} // namespace torus
