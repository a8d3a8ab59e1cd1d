// Ops that make or change storages and metadata: they run no program, so they are not rules.
#pragma once

#include <c10/core/StorageImpl.h>

namespace torus {

// Keeps the bytes that fit; new ones are zero.
void resize_storage(c10::StorageImpl& storage, size_t nbytes);

} // namespace torus
