// Checks of indices in compiled graphs. A call does not wait for its own: they are looked at when they are there, at
// the latest before the host reads anything.
#pragma once

#include "program.h"

namespace torus {

// Keeps the reports of a run; `first` is the place of the first one among its results.
void defer_checks(const Entry& entry, PyObject* results, Py_ssize_t first);

// Raises for the first kept check that failed; `wait`: for all that are kept, else for those that are there.
void settle_checks(bool wait);

} // namespace torus
