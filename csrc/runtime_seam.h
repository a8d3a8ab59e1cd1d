// The seam to the runtime: every call from C++ into Python goes through here.
#pragma once

#include <Python.h>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <utility>

#include "value.h"

namespace at {
class Tensor;
}

namespace torus {

class GilGuard {
 public:
  GilGuard() : state_(PyGILState_Ensure()) {}
  ~GilGuard() {
    PyGILState_Release(state_);
  }
  GilGuard(const GilGuard&) = delete;
  GilGuard& operator=(const GilGuard&) = delete;

 private:
  PyGILState_STATE state_;
};

// An owned reference to a Python object. Needs the GIL.
class PyRef {
 public:
  PyRef() = default;
  explicit PyRef(PyObject* owned) : object_(owned) {}
  PyRef(PyRef&& other) noexcept : object_(other.release()) {}
  // What was here goes last: its end may let go of the GIL, and other threads must find the new object then.
  PyRef& operator=(PyRef&& other) noexcept {
    PyRef taken(std::move(other));
    std::swap(object_, taken.object_);
    return *this;
  }
  PyRef(const PyRef&) = delete;
  PyRef& operator=(const PyRef&) = delete;
  ~PyRef() {
    Py_XDECREF(object_);
  }
  PyObject* get() const {
    return object_;
  }
  PyObject* release() {
    auto* object = object_;
    object_ = nullptr;
    return object;
  }
  explicit operator bool() const {
    return object_ != nullptr;
  }

 private:
  PyObject* object_ = nullptr;
};

// `object`, or the pending Python exception thrown as the C++ exception that PyTorch turns back into it.
PyRef checked(PyObject* object);
[[noreturn]] void throw_python_error();

// A module of functions that the core calls by name (torus.backend.eager.seam).
void set_seam(PyObject* module);
PyRef call_seam(const char* name, c10::ArrayRef<PyObject*> args);

// Runs a program on `arrays` (a list, borrowed); gives a list of arrays.
PyRef execute(PyObject* program, PyObject* handlers, PyObject* arrays);

// A CPU tensor of `dtype` as an array on the device, without a copy: the tensor must be contiguous and must not change.
PyRef array_from_host(const at::Tensor& tensor, c10::DeviceIndex device);
// The values of an array as a flat CPU tensor of its layout's dtype. Waits; shares memory on the host platform: do not
// write to it.
at::Tensor host_view(Value& value);

std::pair<size_t, size_t> memory_info(c10::DeviceIndex device);

} // namespace torus
