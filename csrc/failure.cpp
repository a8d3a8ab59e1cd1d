#include "failure.h"

#include "place.h"
#include "python_values.h"

namespace torus {
namespace {

PyRef& unreported() {
  static auto* failure = new PyRef();
  return *failure;
}

} // namespace

PyRef caught(const std::exception_ptr& exception, const Trace& trace, size_t node) {
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
  const auto& n = trace.nodes[node];
  auto note = "by " + n.entry->op->name;
  if (n.place >= 0) {
    const auto line = describe(trace.places[static_cast<size_t>(n.place)]);
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
  PyErr_SetInterrupt();
  return true;
}

void note_failure(PyObject* error) {
  unreported() = owned(error);
}

void report_failure(PyObject* error) {
  if (unreported().get() == error) {
    unreported() = PyRef();
  }
}

void raise_unreported_failure() {
  auto error = std::move(unreported());
  if (error) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.get())), error.get());
    throw_python_error();
  }
}

} // namespace torus
