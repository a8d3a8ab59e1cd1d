#include "runtime_seam.h"

#include <ATen/DLConvertor.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/Exceptions.h>

#include <cstring>
#include <initializer_list>

namespace torus {
namespace {

PyObject* seam = nullptr;

PyObject* interned(const char* text) {
  return PyUnicode_InternFromString(text);
}

// Dynamo, which traces what Python runs below a compiled function, stays out of the runtime.
class WithoutDynamo {
 public:
  WithoutDynamo() : previous_(exchange(Py_None)) {}
  ~WithoutDynamo() {
    PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
    PyErr_Fetch(&type, &value, &traceback);
    exchange(previous_.get());
    PyErr_Restore(type, value, traceback);
  }
  WithoutDynamo(const WithoutDynamo&) = delete;
  WithoutDynamo& operator=(const WithoutDynamo&) = delete;

 private:
  static PyRef exchange(PyObject* callback) {
    static auto* module = PyImport_ImportModule("torch._C._dynamo.eval_frame");
    static auto* set = module != nullptr ? PyObject_GetAttrString(module, "set_eval_frame") : nullptr;
    PyErr_Clear();
    auto* previous = set != nullptr ? PyObject_CallOneArg(set, callback) : nullptr;
    PyErr_Clear();
    if (previous == nullptr) {
      Py_INCREF(Py_None);
      return PyRef(Py_None);
    }
    return PyRef(previous);
  }

  PyRef previous_;
};

// What a runtime raises where memory is exhausted, as PyTorch has it for accelerators.
void convert_out_of_memory() {
  if (PyErr_ExceptionMatches(PyExc_RuntimeError) == 0) {
    return;
  }
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const PyRef text(PyObject_Str(value));
  const char* said = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  const PyRef torch(PyImport_ImportModule("torch"));
  const PyRef wanted(torch ? PyObject_GetAttrString(torch.get(), "OutOfMemoryError") : nullptr);
  PyErr_Clear();
  const char* begin = "RESOURCE_EXHAUSTED";
  const bool exhausted = said != nullptr && std::strncmp(said, begin, std::strlen(begin)) == 0;
  if (!exhausted || !wanted || PyErr_GivenExceptionMatches(value, wanted.get()) != 0) {
    PyErr_Restore(type, value, traceback);
    return;
  }
  PyErr_SetString(wanted.get(), said);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
}

void delete_unused_capsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor")) {
    auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
    managed->deleter(managed);
  }
}

} // namespace

void throw_python_error() {
  convert_out_of_memory();
  python_error error;
  error.persist();
  throw error; // NOLINT
}

PyRef checked(PyObject* object) {
  if (object == nullptr) {
    throw_python_error();
  }
  return PyRef(object);
}

void set_seam(PyObject* module) {
  Py_XINCREF(module);
  Py_XDECREF(seam);
  seam = module;
}

PyRef call_seam(const char* name, c10::ArrayRef<PyObject*> args) {
  TORCH_CHECK(seam != nullptr, "the tpu device is not set up: import torus");
  auto function = checked(PyObject_GetAttrString(seam, name));
  const WithoutDynamo guard;
  return checked(PyObject_Vectorcall(function.get(), args.data(), args.size(), nullptr));
}

PyRef execute(PyObject* program, PyObject* handlers, PyObject* arrays) {
  static auto* consume = interned("consume_with_handlers");
  auto results = checked(PyObject_Vectorcall(program, &arrays, 1, nullptr));
  PyObject* call[] = {results.get(), handlers};
  return checked(PyObject_VectorcallMethod(consume, call, 2, nullptr));
}

PyRef array_from_host(const at::Tensor& tensor, c10::DeviceIndex device) {
  auto* managed = at::toDLPack(tensor);
  auto capsule = checked(PyCapsule_New(managed, "dltensor", &delete_unused_capsule));
  auto index = checked(PyLong_FromLong(device));
  return call_seam("from_dlpack", {capsule.get(), index.get()});
}

at::Tensor host_view(Value& value) {
  auto capsule = call_seam("to_dlpack", {value.array()});
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.get(), "dltensor"));
  if (managed == nullptr) {
    throw_python_error();
  }
  PyCapsule_SetName(capsule.get(), "used_dltensor");
  // The capsule's owner may need the GIL to let go of the array, and tensors die without it.
  auto tensor = at::fromDLPack(managed, [managed](void*) {
    if (!Py_IsInitialized()) {
      return;
    }
    GilGuard gil;
    managed->deleter(managed);
  });
  return tensor.scalar_type() == value.layout()->dtype ? tensor.view({-1})
                                                       : tensor.view({-1}).view(value.layout()->dtype);
}

std::pair<size_t, size_t> memory_info(c10::DeviceIndex device) {
  GilGuard gil;
  auto index = checked(PyLong_FromLong(device));
  auto pair = call_seam("memory_info", {index.get()});
  return {PyLong_AsSize_t(PyTuple_GetItem(pair.get(), 0)), PyLong_AsSize_t(PyTuple_GetItem(pair.get(), 1))};
}

} // namespace torus
