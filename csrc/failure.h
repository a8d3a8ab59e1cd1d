// Failures of recorded ops: what a user sees of them, and when.
#pragma once

#include <torch/csrc/Exceptions.h>

#include <exception>

#include "trace.h"

namespace torus {

// An exception as a Python object that names the op and the line that recorded it.
PyRef caught(const std::exception_ptr& exception, const Trace& trace, size_t node);
// `place`: null where lines are not kept.
PyRef caught(const std::exception_ptr& exception, const Entry& entry, const Place* place);

// True, and put off until Python can raise it, for Ctrl-C while a program was compiled or loaded: work must not be
// lost.
bool put_off_interrupt(python_error& error);
// Has Python raise what was put off, at its next step.
void deliver_interrupt();

// Calls a function of the seam on which no result depends: what it raises is printed, and false returned.
bool tell_seam(const char* name, c10::ArrayRef<PyObject*> args);

// Failures that nobody has seen are kept, for synchronize() to raise.
void note_failure(PyObject* error);
void report_failure(PyObject* error);
void raise_unreported_failure();

} // namespace torus
