// Running a program: its scalars go to the device in one small array, its launch is counted and remembered.
#pragma once

#include <c10/util/ArrayRef.h>

#include "program.h"

namespace torus {

// The words as an array on the device; `may_repeat`: keep it for a call with the same words.
PyRef upload_pack(c10::ArrayRef<uint32_t> words, c10::DeviceIndex device, bool may_repeat);

// Has the program of an entry in memory: an entry that was only recorded so far may have none.
void load_program(Entry& entry);

// Runs a program on `inputs` (a list of arrays); gives the list of results.
PyRef launch_program(PyObject* execute, PyObject* handlers, PyObject* inputs, c10::DeviceIndex device);

// Raises for the first index check of an entry that failed; `reports` starts with report number `first`. Waits.
void raise_failed_checks(const Entry& entry, PyObject* results, Py_ssize_t first);

// The output of the program launched last on a device (borrowed, may be null): waiting for it waits for the work before
// it.
PyObject* last_launched(c10::DeviceIndex device);
// A program is about to use up `array`; true if it was the last output, which is then forgotten.
bool forget_launched(c10::DeviceIndex device, PyObject* array);

} // namespace torus
