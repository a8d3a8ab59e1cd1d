// Python values from C++ ones, and back, for the slow path. All of it needs the GIL.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "runtime_seam.h"

namespace torus {

PyRef none();
PyRef owned(PyObject* borrowed);
PyRef py_int(int64_t value);
PyRef py_text(const std::string& value);
PyRef py_bytes(const std::string& value);
PyRef py_ints(at::IntArrayRef values);
PyRef py_dtype(c10::ScalarType dtype);
// A static argument: numbers, strings, dtypes, lists of them.
PyRef py_static(const c10::IValue& value, bool is_dtype);

std::vector<int64_t> to_ints(PyObject* sequence);
c10::ScalarType to_dtype(PyObject* object);

template <typename... Items> PyRef py_tuple(Items... items) {
  auto tuple = checked(PyTuple_New(sizeof...(items)));
  Py_ssize_t i = 0;
  (PyTuple_SET_ITEM(tuple.get(), i++, items.release()), ...);
  return tuple;
}

class PyListBuilder {
 public:
  PyListBuilder() : list_(checked(PyList_New(0))) {}
  void add(PyRef item) {
    if (PyList_Append(list_.get(), item.get()) != 0) {
      throw_python_error();
    }
  }
  PyRef finish() {
    return std::move(list_);
  }

 private:
  PyRef list_;
};

} // namespace torus
