#include "place.h"

#include <cstring>
#include <unordered_map>

namespace torus {
namespace {

// Code of packages is not where a user looks for a mistake. The answer is kept for each code object, which is kept too.
bool is_library(PyCodeObject* code) {
  static auto* known = new std::unordered_map<PyCodeObject*, bool>();
  const auto found = known->find(code);
  if (found != known->end()) {
    return found->second;
  }
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  const bool library = file == nullptr || std::strstr(file, "-packages/torch/") != nullptr ||
                       std::strstr(file, "/torus/backend/") != nullptr || std::strncmp(file, "<frozen", 7) == 0;
  PyErr_Clear();
  Py_INCREF(code);
  known->emplace(code, library);
  return library;
}

} // namespace

Place current_place() {
  Place place;
  auto* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame != nullptr) {
    PyRef code(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
    if (!is_library(reinterpret_cast<PyCodeObject*>(code.get()))) {
      place.code = std::move(code);
      place.line = PyFrame_GetLineNumber(frame);
      Py_DECREF(frame);
      break;
    }
    auto* outer = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = outer;
  }
  return place;
}

Place share(const Place& place) {
  Py_XINCREF(place.code.get());
  return {PyRef(place.code.get()), place.line};
}

std::string describe(const Place& place) {
  if (!place.code) {
    return "";
  }
  auto* code = reinterpret_cast<PyCodeObject*>(place.code.get());
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  const char* name = PyUnicode_AsUTF8(code->co_qualname);
  if (file == nullptr || name == nullptr) {
    PyErr_Clear();
    return "";
  }
  return std::string(file) + ":" + std::to_string(place.line) + " in " + name;
}

} // namespace torus
