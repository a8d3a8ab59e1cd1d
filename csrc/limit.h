// The most memory that a device may hold, where that is less than there is: what a chip would refuse is refused.
#pragma once

#include <string>

#include "program.h"

namespace torus {

// 0: no limit. Where any device has one, values know their origin.
void limit_memory(c10::DeviceIndex device, int64_t nbytes);

// Has room for `nbytes` more than what is alive, which count for the peak. Raises torch.OutOfMemoryError, which says
// what asked and what lives, where a limit forbids them. Needs the GIL.
void admit(c10::DeviceIndex device, int64_t nbytes, const char* what);
// The same for a loaded program, and `more` bytes: asked only where there are limits.
void admit(c10::DeviceIndex device, Entry& entry, int64_t more = 0);

// (dtype, sizes, bytes, what made it, line of the user's program or "") of each value alive on a device that has a
// limit.
PyObject* describe_live(c10::DeviceIndex device);

} // namespace torus
