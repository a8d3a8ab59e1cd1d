// The slow path: a signature that has no program yet. PyTorch's meta kernels say what the results are; Python makes the
// program.
#include <torch/csrc/Exceptions.h>

#include <atomic>

#include "cpu_sizes.h"
#include "meta.h"
#include "program.h"
#include "python_values.h"

namespace torus {
namespace {

class RequestArgs {
 public:
  PyRef build(const OpInfo& op, at::ArrayRef<c10::IValue> args, const Signature& signature) {
    signature_ = &signature;
    PyListBuilder list;
    for (size_t i = 0; i < args.size(); ++i) {
      const auto& info = op.args[i];
      auto encoded = encode(info, args[i]);
      if (!info.result_only) {
        list.add(py_tuple(py_text(info.name), PyRef(PyBool_FromLong(info.keyword)), std::move(encoded)));
      }
    }
    return list.finish();
  }

 private:
  PyRef encode(const ArgInfo& info, const c10::IValue& value) {
    switch (info.kind) {
      case ArgKind::kTensor:
        return tensor(value);
      case ArgKind::kScalar:
        return scalar(info, value);
      case ArgKind::kTensorList:
      case ArgKind::kScalarList: {
        if (value.isNone()) {
          return fixed(none());
        }
        PyListBuilder items;
        for (const auto& element : value.toListRef()) {
          items.add(info.kind == ArgKind::kTensorList ? tensor(element) : scalar(info, element));
        }
        return py_tuple(py_text("list"), items.finish());
      }
      case ArgKind::kGenerator:
        return py_tuple(py_text("random"), none());
      case ArgKind::kIgnored:
        return fixed(none());
      case ArgKind::kStatic:
        return fixed(py_static(value, info.is_dtype));
    }
    return fixed(none());
  }

  PyRef fixed(PyRef value) {
    return py_tuple(py_text("static"), std::move(value));
  }

  PyRef scalar(const ArgInfo& info, const c10::IValue& value) {
    if (find_usual(info, value).has_value()) {
      const bool real = value.isDouble();
      return py_tuple(py_text("usual"), py_tuple(py_dtype(!real                ? at::kLong
                                                          : signature_->wide() ? at::kDouble
                                                                               : at::kFloat),
                                                 py_static(value, false)));
    }
    return value.isNone() ? fixed(none()) : py_tuple(py_text("scalar"), py_int(next_scalar_++));
  }

  PyRef tensor(const c10::IValue& value) {
    if (value.isNone() || !value.toTensor().defined()) {
      return fixed(none());
    }
    const auto& t = value.toTensor();
    if (t.device().type() != kDevice && t.dim() == 0) {
      return py_tuple(py_text("scalar"), py_int(next_scalar_++));
    }
    return py_tuple(py_text("tensor"), py_int(next_tensor_++));
  }

  const Signature* signature_ = nullptr;
  int64_t next_tensor_ = 0;
  int64_t next_scalar_ = 0;
};

PyRef py_layout(const Layout* layout) {
  return layout == nullptr ? none() : py_tuple(py_dtype(layout->dtype), py_ints(layout->shape));
}

PyRef py_tensors(const Signature& signature) {
  PyListBuilder list;
  for (const auto& arg : signature.tensors()) {
    list.add(py_tuple(py_dtype(arg.tensor->scalar_type()), py_ints(arg.tensor->sizes()), py_ints(arg.tensor->strides()),
                      py_layout(arg.value ? arg.value->layout() : nullptr),
                      py_int(static_cast<int64_t>(held_bytes(*arg.tensor, arg.value))), py_int(arg.offset_word),
                      py_int(arg.slot), PyRef(PyBool_FromLong(arg.written))));
  }
  return list.finish();
}

const char* kind_name(ScalarKind kind) {
  constexpr const char* names[] = {"bool", "int", "float", "complex"};
  return names[static_cast<size_t>(kind)];
}

PyRef py_scalars(const Signature& signature) {
  PyListBuilder list;
  for (const auto& arg : signature.scalars()) {
    const bool own = arg.from_tensor && !arg.wrapped;
    list.add(py_tuple(py_text(kind_name(arg.kind)), py_dtype(arg.packed), py_int(arg.word),
                      own ? py_dtype(arg.dtype) : none()));
  }
  return list.finish();
}

PyRef py_request(const Signature& signature, at::ArrayRef<c10::IValue> args) {
  const auto& op = signature.op();
  return py_tuple(py_text(op.rule.name), py_text(op.name), RequestArgs().build(op, args, signature),
                  py_tensors(signature), py_scalars(signature), py_int(static_cast<int64_t>(signature.pack().size())),
                  py_int(signature.random_word()), py_int(signature.device()), py_int(precision()),
                  py_dtype(c10::get_default_dtype_as_scalartype()), py_ints(signature.lengths()));
}

PyRef py_promise(const at::Tensor& tensor) {
  return tensor.defined() ? py_tuple(py_dtype(tensor.scalar_type()), py_ints(tensor.sizes()), py_ints(tensor.strides()))
                          : none();
}

PyRef py_promise(const c10::IValue& value) {
  if (value.isTensor()) {
    return py_promise(value.toTensor());
  }
  if (value.isNone()) {
    return none();
  }
  if (value.isInt() || value.isSymInt()) {
    return py_int(value.toSymInt().expect_int());
  }
  PyListBuilder list;
  for (const auto& element : value.toListRef()) {
    list.add(py_promise(element.toTensor()));
  }
  return list.finish();
}

// `shapes` says of each new result what it is: -1 a tensor, n a list of n tensors, (k,) the number k.
std::vector<ReturnPlan> plan_returns(const c10::FunctionSchema& schema, const OpInfo& info, PyObject* shapes) {
  std::vector<ReturnPlan> plans;
  Py_ssize_t fresh = 0;
  for (const auto& result : schema.returns()) {
    int32_t argument = info.name == "aten::_copy_from" ? 1 : -1;
    if (result.alias_info() != nullptr && result.alias_info()->isWrite()) {
      for (size_t i = 0; i < schema.arguments().size(); ++i) {
        const auto* alias = schema.arguments()[i].alias_info();
        if (alias != nullptr && alias->beforeSets() == result.alias_info()->beforeSets()) {
          argument = static_cast<int32_t>(i);
        }
      }
    }
    if (argument >= 0) {
      plans.push_back({ReturnPlan::kArgument, argument, 0});
      continue;
    }
    if (fresh >= PySequence_Size(shapes)) {
      plans.push_back({ReturnPlan::kFresh, 0, 0});
      continue;
    }
    auto shape = checked(PySequence_GetItem(shapes, fresh++));
    if (PyTuple_Check(shape.get())) {
      plans.push_back({ReturnPlan::kNumber, 0, PyLong_AsLongLong(PyTuple_GetItem(shape.get(), 0))});
      continue;
    }
    const auto count = PyLong_AsLongLong(shape.get());
    plans.push_back({count < 0 ? ReturnPlan::kFresh : ReturnPlan::kFreshList, 0, count});
  }
  return plans;
}

PyObject* item(const PyRef& tuple, Py_ssize_t index) {
  auto* object = PyTuple_GetItem(tuple.get(), index);
  if (object == nullptr) {
    throw_python_error();
  }
  return object;
}

ResultPlan read_result(PyObject* object) {
  ResultPlan plan{};
  if (object == Py_None) {
    plan.none = true;
    return plan;
  }
  auto row = owned(object);
  plan.dtype = to_dtype(item(row, 0));
  plan.sizes = to_ints(item(row, 1));
  plan.strides = to_ints(item(row, 2));
  plan.layout = intern_layout(to_dtype(item(row, 3)), to_ints(item(row, 4)));
  plan.writes = static_cast<int32_t>(PyLong_AsLong(item(row, 5)));
  return plan;
}

// (recipe, inputs, takes_pack, results, counts, checks, cost, donated), or None for "no lowering". `schema`: null for a
// compiled graph, which returns its results as they are.
std::unique_ptr<Entry> read_entry(const PyRef& answer, const c10::FunctionSchema* schema, const OpInfo& info) {
  auto entry = std::make_unique<Entry>();
  if (answer.get() == Py_None) {
    entry->kind = Entry::kFallback;
    return entry;
  }
  static std::atomic<uint64_t> next_id{1};
  entry->id = next_id.fetch_add(1);
  entry->op = &info;
  entry->recipe = owned(item(answer, 0));
  for (auto index : to_ints(item(answer, 1))) {
    entry->inputs.push_back(static_cast<int32_t>(index));
  }
  entry->takes_pack = item(answer, 2) == Py_True;
  auto* results = item(answer, 3);
  for (Py_ssize_t i = 0; i < PySequence_Size(results); ++i) {
    auto row = checked(PySequence_GetItem(results, i));
    entry->results.push_back(read_result(row.get()));
  }
  if (schema != nullptr) {
    entry->returns = plan_returns(*schema, info, item(answer, 4));
  }
  if (item(answer, 5) != Py_None) {
    entry->checks = owned(item(answer, 5));
  }
  entry->cost = static_cast<int32_t>(PyLong_AsLong(item(answer, 6)));
  for (auto index : to_ints(item(answer, 7))) {
    entry->donated.push_back(static_cast<int32_t>(index));
  }
  return entry;
}

} // namespace

std::unique_ptr<Entry> make_entry(const Signature& signature, const c10::OperatorHandle& op,
                                  at::ArrayRef<c10::IValue> args, bool lazy) {
  const auto& info = signature.op();
  const PyRef may_wait(PyBool_FromLong(lazy));
  auto key = py_bytes(signature.stable_key());
  auto device = py_int(signature.device());
  auto answer = call_seam("lookup", {key.get(), device.get(), may_wait.get()});
  if (answer.get() != Py_None) {
    return read_entry(answer, &op.schema(), info);
  }
  std::optional<torch::jit::Stack> results;
  if (info.functional.has_value()) {
    results = call_meta(*info.functional, info, args);
  }
  if (info.form == OpForm::kOut && info.functional.has_value() && !results.has_value()) {
    results = call_host(*info.functional, info, args); // what is given may have other sizes than the results
  }
  if (results.has_value()) {
    take_cpu_sizes(info, args, *results);
  }
  if (info.form == OpForm::kInPlace) {
    check_in_place(op, info, args, results);
  }
  if (info.form == OpForm::kOut && results.has_value()) {
    auto resizes = needed_resizes(info, args, *results);
    if (!resizes.empty()) {
      auto entry = std::make_unique<Entry>();
      entry->kind = Entry::kResizeThenRetry;
      entry->resizes = std::move(resizes);
      return entry;
    }
  }
  if (info.form == OpForm::kOut) {
    call_meta(op, info, args); // the dtypes that it takes, elements that share memory
  }
  PyRef promises = none();
  if (results.has_value()) {
    PyListBuilder list;
    for (const auto& value : *results) {
      list.add(py_promise(value));
    }
    promises = list.finish();
  }
  auto request = py_request(signature, args);
  try {
    answer = call_seam("build", {key.get(), request.get(), promises.get(), may_wait.get()});
  } catch (python_error& error) {
    error.persist();
    raise_as_cpu(op, info, args);
    throw;
  }
  return read_entry(answer, &op.schema(), info);
}

std::unique_ptr<Entry> make_graph_entry(const Signature& signature, at::ArrayRef<c10::IValue> args, bool lazy) {
  const PyRef may_wait(PyBool_FromLong(lazy));
  auto key = py_bytes(signature.stable_key());
  auto device = py_int(signature.device());
  auto answer = call_seam("lookup", {key.get(), device.get(), may_wait.get()});
  if (answer.get() == Py_None) {
    auto request = py_request(signature, args);
    answer = call_seam("build", {key.get(), request.get(), Py_None, may_wait.get()});
  }
  return read_entry(answer, nullptr, signature.op());
}

} // namespace torus
