#include "failure.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "checks.h"
#include "open_checks.h"
#include "place.h"
#include "python_values.h"

namespace torus {
namespace {

constexpr size_t kMostUnreported = 64;
bool interrupted = false; // guarded by the GIL

std::vector<PyRef>& unreported() {
  static auto* failures = new std::vector<PyRef>();
  return *failures;
}

} // namespace

PyRef caught(const std::exception_ptr& exception, const Trace& trace, size_t node) {
  const auto& n = trace.nodes[node];
  return caught(exception, *n.entry, n.place < 0 ? nullptr : &trace.places[static_cast<size_t>(n.place)]);
}

PyRef caught(const std::exception_ptr& exception, const Entry& entry, const Place* place) {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  try {
    std::rethrow_exception(exception);
  } catch (python_error& error) {
    error.restore();
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
  } catch (const std::exception& error) {
    value = PyObject_CallFunction(PyExc_RuntimeError, "s", error.what());
  }
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  auto result = checked(value);
  auto note = "by " + entry.op->name;
  if (place != nullptr) {
    const auto line = describe(*place);
    note += line.empty() ? ", recorded by autograd" : ", recorded at " + line;
  }
  PyRef ignored(PyObject_CallMethod(result.get(), "add_note", "s", note.c_str()));
  PyErr_Clear();
  return result;
}

bool put_off_interrupt(python_error& error) {
  error.restore();
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) == 0) {
    error.persist();
    return false;
  }
  PyErr_Clear();
  interrupted = true;
  return true;
}

void deliver_interrupt() {
  if (std::exchange(interrupted, false)) {
    PyErr_SetInterrupt();
  }
}

void note_failure(PyObject* error) {
  if (unreported().size() < kMostUnreported) {
    unreported().push_back(owned(error));
  }
}

void report_failure(PyObject* error) {
  auto& failures = unreported();
  const auto found =
      std::find_if(failures.begin(), failures.end(), [&](const PyRef& failure) { return failure.get() == error; });
  if (found != failures.end()) {
    failures.erase(found);
  }
}

void raise_unreported_failure() {
  settle_open_checks(true);
  settle_checks(true);
  auto& failures = unreported();
  if (failures.empty()) {
    return;
  }
  const auto error = std::move(failures.front());
  failures.erase(failures.begin());
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.get())), error.get());
  throw_python_error();
}

bool tell_seam(const char* name, c10::ArrayRef<PyObject*> args) {
  try {
    call_seam(name, args);
    return true;
  } catch (python_error& error) {
    if (!put_off_interrupt(error)) {
      error.restore();
      PyErr_WriteUnraisable(nullptr);
    }
    return false;
  }
}

} // namespace torus
