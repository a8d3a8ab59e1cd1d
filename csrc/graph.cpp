#include "graph.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/python_numbers.h>

#include "checks.h"
#include "dispatch.h"
#include "launch.h"
#include "program.h"
#include "trace.h"

namespace torus {
namespace {

std::vector<ArgInfo> arguments_of(const std::string& kinds) {
  std::vector<ArgInfo> args;
  for (size_t i = 0; i < kinds.size(); ++i) {
    ArgInfo info;
    info.name = "arg" + std::to_string(i);
    info.kind = kinds[i] == 's' ? ArgKind::kStatic : kinds[i] == 'r' ? ArgKind::kScalar : ArgKind::kTensor;
    info.written = kinds[i] == 'w';
    args.push_back(std::move(info));
  }
  return args;
}

RuleTraits traits_of(const std::string& name, const std::string& kinds, uint32_t draws) {
  RuleTraits rule;
  rule.name = name;
  rule.host_tensors = true;
  rule.implicit_random = draws > 0;
  rule.draws = draws;
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] == 'w') {
      rule.mutates.push_back("arg" + std::to_string(i));
    }
  }
  return rule;
}

c10::IValue to_value(PyObject* object) {
  if (THPVariable_Check(object)) {
    const auto& tensor = THPVariable_Unpack(object);
    return tensor.is_conj() || tensor.is_neg() ? tensor.resolve_conj().resolve_neg() : tensor;
  }
  if (object == Py_None) {
    return {};
  }
  if (PyBool_Check(object)) {
    return object == Py_True;
  }
  if (PyFloat_Check(object)) {
    return PyFloat_AS_DOUBLE(object);
  }
  return THPUtils_unpackLong(object);
}

} // namespace

Graph::Graph(const std::string& name, const std::string& kinds, uint32_t draws)
    : info_(arguments_of(kinds), traits_of(name, kinds, draws)) {}

namespace {

std::vector<c10::IValue> to_values(const OpInfo& info, const pybind11::list& arguments) {
  TORCH_CHECK_VALUE(arguments.size() == info.args.size(), info.name, " takes ", info.args.size(), " arguments, got ",
                    arguments.size());
  std::vector<c10::IValue> values;
  values.reserve(arguments.size());
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(arguments.ptr()); ++i) {
    values.push_back(to_value(PyList_GET_ITEM(arguments.ptr(), i)));
  }
  return values;
}

Entry& find_entry(const Signature& signature, at::ArrayRef<c10::IValue> values) {
  const auto hash = hash_key(signature.key());
  auto* entry = program_table().find(signature.key(), hash);
  if (entry == nullptr) {
    auto made = make_graph_entry(signature, values, false);
    made->key = signature.key();
    entry = program_table().insert(std::move(made), hash);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(entry->kind == Entry::kProgram, "no lowering of ", signature.op().name,
                              " for these arguments");
  return *entry;
}

} // namespace

std::vector<at::Tensor> Graph::run(const pybind11::list& arguments) const {
  drain_garbage();
  settle_checks(false);
  const auto values = to_values(info_, arguments);
  Signature signature(info_, values);
  return launch(find_entry(signature, values), signature, true);
}

void Graph::prepare(const pybind11::list& arguments) const {
  const auto values = to_values(info_, arguments);
  const Signature signature(info_, values);
  load_program(find_entry(signature, values));
}

} // namespace torus
