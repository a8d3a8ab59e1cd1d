#include "python_values.h"

#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>

namespace torus {

PyRef none() {
  Py_INCREF(Py_None);
  return PyRef(Py_None);
}

PyRef py_int(int64_t value) {
  return checked(PyLong_FromLongLong(value));
}

PyRef py_text(const std::string& value) {
  return checked(PyUnicode_FromStringAndSize(value.data(), static_cast<Py_ssize_t>(value.size())));
}

PyRef py_bytes(const std::string& value) {
  return checked(PyBytes_FromStringAndSize(value.data(), static_cast<Py_ssize_t>(value.size())));
}

PyRef py_ints(at::IntArrayRef values) {
  auto tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(values.size())));
  for (size_t i = 0; i < values.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), py_int(values[i]).release());
  }
  return tuple;
}

PyRef py_dtype(c10::ScalarType dtype) {
  auto* object = reinterpret_cast<PyObject*>(torch::getTHPDtype(dtype));
  Py_INCREF(object);
  return PyRef(object);
}

PyRef py_static(const c10::IValue& value, bool is_dtype) {
  if (value.isNone()) {
    return none();
  }
  if (value.isInt()) {
    return is_dtype ? py_dtype(value.toScalarType()) : py_int(value.toInt());
  }
  if (value.isBool()) {
    return checked(PyBool_FromLong(value.toBool()));
  }
  if (value.isDouble()) {
    return checked(PyFloat_FromDouble(value.toDouble()));
  }
  if (value.isComplexDouble()) {
    return checked(PyComplex_FromDoubles(value.toComplexDouble().real(), value.toComplexDouble().imag()));
  }
  if (value.isString()) {
    return py_text(value.toStringRef());
  }
  PyListBuilder list;
  for (const auto& element : value.toListRef()) {
    list.add(py_static(element, false));
  }
  return list.finish();
}

std::vector<int64_t> to_ints(PyObject* sequence) {
  std::vector<int64_t> result;
  const auto size = PySequence_Size(sequence);
  for (Py_ssize_t i = 0; i < size; ++i) {
    auto item = checked(PySequence_GetItem(sequence, i));
    result.push_back(PyLong_AsLongLong(item.get()));
  }
  return result;
}

c10::ScalarType to_dtype(PyObject* object) {
  TORCH_CHECK(THPDtype_Check(object), "expected a torch.dtype");
  return reinterpret_cast<THPDtype*>(object)->scalar_type;
}

PyRef owned(PyObject* borrowed) {
  Py_INCREF(borrowed);
  return PyRef(borrowed);
}

} // namespace torus
