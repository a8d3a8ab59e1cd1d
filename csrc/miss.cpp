// The slow path: a signature that has no program yet. PyTorch's meta kernels say what the results are; Python makes the
// program.
#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>

#include "program.h"

namespace torus {
namespace {

// ---- Python values -------------------------------------------------------------------------------------------------

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

// ---- the request: what Python is told of a signature
// -----------------------------------------------------------------

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
        return scalar(value);
      case ArgKind::kTensorList:
      case ArgKind::kScalarList: {
        if (value.isNone()) {
          return fixed(none());
        }
        PyListBuilder items;
        for (const auto& element : value.toListRef()) {
          items.add(info.kind == ArgKind::kTensorList ? tensor(element) : scalar(element));
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

  PyRef scalar(const c10::IValue& value) {
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
                      py_int(static_cast<int64_t>(arg.tensor->storage().nbytes())), py_int(arg.offset_word),
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

// ---- PyTorch's word on the results
// -------------------------------------------------------------------------------------

at::Tensor to_meta(const at::Tensor& tensor) {
  // Numbers stay what they are: meta kernels accept CPU tensors without dimensions as device kernels do.
  if (!tensor.defined() || (tensor.device().is_cpu() && tensor.dim() == 0)) {
    return tensor;
  }
  return at::Tensor(at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type(), std::nullopt,
                                                   c10::Device(c10::DeviceType::Meta), std::nullopt));
}

c10::IValue replace_tensors(const ArgInfo& info, const c10::IValue& value, at::Tensor (*map)(const at::Tensor&),
                            c10::DeviceType device) {
  if (value.isTensor()) {
    return map(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const auto& element : value.toListRef()) {
      list.push_back(map(element.toTensor()));
    }
    return list;
  }
  if (info.kind == ArgKind::kTensorList && value.isList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& element : value.toListRef()) {
      list.push_back(element.isNone() ? std::optional<at::Tensor>() : map(element.toTensor()));
    }
    return list;
  }
  if (value.isDevice()) {
    return c10::Device(device);
  }
  if (info.kind == ArgKind::kGenerator || info.name == "pin_memory") {
    return {};
  }
  return value;
}

c10::IValue dtype_of_result(const OpInfo& info, at::ArrayRef<c10::IValue> args) {
  for (size_t i = 0; i < args.size(); ++i) {
    if (info.args[i].written && args[i].isTensor()) {
      return static_cast<int64_t>(args[i].toTensor().scalar_type());
    }
  }
  return {};
}

at::Tensor to_small_host(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().is_cpu()) {
    return tensor;
  }
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::DeviceType::CPU)).zero_();
}

using TensorMap = at::Tensor (*)(const at::Tensor&);

// The arguments of `op` by name from a call of one of its forms, tensors replaced.
torch::jit::Stack arguments_for(const c10::OperatorHandle& op, const OpInfo& info, at::ArrayRef<c10::IValue> args,
                                TensorMap map, c10::DeviceType device) {
  torch::jit::Stack stack;
  for (const auto& argument : op.schema().arguments()) {
    const auto found =
        std::find_if(info.args.begin(), info.args.end(), [&](const ArgInfo& i) { return i.name == argument.name(); });
    if (found != info.args.end()) {
      stack.push_back(replace_tensors(*found, args[static_cast<size_t>(found - info.args.begin())], map, device));
    } else if (argument.name() == "device") {
      stack.emplace_back(c10::Device(device));
    } else if (argument.name() == "dtype") {
      stack.push_back(dtype_of_result(info, args));
    } else {
      stack.push_back(argument.default_value().value_or(c10::IValue()));
    }
  }
  return stack;
}

// Meta kernels written in Python do not always raise what the op raises. The CPU does; on nothing but the sizes, values
// aside. True when the CPU has no objection, so that the meta kernel was wrong; false when asking would take too much
// memory.
bool cpu_accepts(const c10::OperatorHandle& op, const OpInfo& info, at::ArrayRef<c10::IValue> args) {
  constexpr int64_t kSmall = 1 << 24;
  int64_t total = 0;
  for (const auto& value : args) {
    total += value.isTensor() && value.toTensor().defined() ? value.toTensor().numel() : 0;
  }
  if (total > kSmall) {
    return false;
  }
  auto stack = arguments_for(op, info, args, &to_small_host, c10::DeviceType::CPU);
  op.callBoxed(&stack);
  return true;
}

// Calls `op` on meta tensors; nothing when PyTorch has no meta kernel for it.
std::optional<torch::jit::Stack> call_meta(const c10::OperatorHandle& op, const OpInfo& info,
                                           at::ArrayRef<c10::IValue> args) {
  auto stack = arguments_for(op, info, args, &to_meta, c10::DeviceType::Meta);
  try {
    op.callBoxed(&stack);
  } catch (const c10::NotImplementedError&) {
    return std::nullopt;
  } catch (python_error& error) {
    error.persist();
    // An AttributeError is a fault of the meta kernel (the LSTM cell's, without biases), and no answer either.
    if (PyErr_GivenExceptionMatches(error.type, PyExc_NotImplementedError) ||
        PyErr_GivenExceptionMatches(error.type, PyExc_AttributeError)) {
      return std::nullopt;
    }
    if (cpu_accepts(op, info, args)) {
      return std::nullopt;
    }
    throw;
  } catch (pybind11::error_already_set& error) {
    if (error.matches(PyExc_NotImplementedError) || error.matches(PyExc_AttributeError)) {
      return std::nullopt;
    }
    if (cpu_accepts(op, info, args)) {
      return std::nullopt;
    }
    throw;
  } catch (const c10::Error&) {
    if (cpu_accepts(op, info, args)) {
      return std::nullopt;
    }
    throw;
  }
  return stack;
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

void check_cast(const c10::IValue& result, const c10::IValue& target) {
  if (result.isTensor() && target.isTensor() && result.toTensor().defined()) {
    const auto from = result.toTensor().scalar_type();
    const auto to = target.toTensor().scalar_type();
    TORCH_CHECK(c10::canCast(from, to), "result type ", from, " can't be cast to the desired output type ", to);
  }
}

// The out= tensors whose sizes differ from those of the results.
std::vector<Resize> needed_resizes(const OpInfo& info, at::ArrayRef<c10::IValue> args,
                                   const torch::jit::Stack& results) {
  std::vector<Resize> resizes;
  int32_t position = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!info.args[i].result_only || !args[i].isTensor()) {
      continue;
    }
    const auto index = static_cast<size_t>(position);
    if (index < results.size() && results[index].isTensor()) {
      check_cast(results[index], args[i]);
      at::assert_no_internal_overlap(args[i].toTensor());
      const auto& wanted = results[index].toTensor();
      if (wanted.defined() && wanted.sizes() != args[i].toTensor().sizes()) {
        resizes.push_back({position, wanted.sizes().vec(), wanted.strides().vec(), wanted.is_contiguous()});
      }
    }
    ++position;
  }
  return resizes;
}

void check_in_place(const c10::OperatorHandle& op, const OpInfo& info, at::ArrayRef<c10::IValue> args,
                    const std::optional<torch::jit::Stack>& functional) {
  for (size_t i = 0; i < args.size(); ++i) {
    if (info.args[i].written && args[i].isTensor() && !info.allows_shared_elements) {
      at::assert_no_internal_overlap(args[i].toTensor());
    }
  }
  if (functional.has_value()) {
    size_t result = 0;
    for (size_t i = 0; i < args.size() && result < functional->size(); ++i) {
      if (info.args[i].written) {
        check_cast((*functional)[result++], args[i]);
      }
    }
  }
  // The in-place op's own meta kernel raises what else it would raise, bad broadcasts above all.
  call_meta(op, info, args);
}

// ---- the entry
// -----------------------------------------------------------------------------------------------------------

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

PyRef owned(PyObject* borrowed) {
  Py_INCREF(borrowed);
  return PyRef(borrowed);
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

// (execute, handlers, inputs, takes_pack, results, counts, checks), or None for "no lowering".
std::unique_ptr<Entry> read_entry(const PyRef& answer, const c10::OperatorHandle& op, const OpInfo& info) {
  auto entry = std::make_unique<Entry>();
  if (answer.get() == Py_None) {
    entry->kind = Entry::kFallback;
    return entry;
  }
  entry->execute = owned(item(answer, 0));
  entry->handlers = owned(item(answer, 1));
  for (auto index : to_ints(item(answer, 2))) {
    entry->inputs.push_back(static_cast<int32_t>(index));
  }
  entry->takes_pack = item(answer, 3) == Py_True;
  auto* results = item(answer, 4);
  for (Py_ssize_t i = 0; i < PySequence_Size(results); ++i) {
    auto row = checked(PySequence_GetItem(results, i));
    entry->results.push_back(read_result(row.get()));
  }
  entry->returns = plan_returns(op.schema(), info, item(answer, 5));
  if (item(answer, 6) != Py_None) {
    entry->checks = owned(item(answer, 6));
  }
  return entry;
}

} // namespace

std::unique_ptr<Entry> make_entry(const Signature& signature, const c10::OperatorHandle& op,
                                  at::ArrayRef<c10::IValue> args) {
  const auto& info = signature.op();
  auto key = py_bytes(signature.stable_key());
  auto device = py_int(signature.device());
  auto answer = call_seam("lookup", {key.get(), device.get()});
  if (answer.get() != Py_None) {
    return read_entry(answer, op, info);
  }
  std::optional<torch::jit::Stack> results;
  if (info.functional.has_value()) {
    results = call_meta(*info.functional, info, args);
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
  PyRef promises = none();
  if (results.has_value()) {
    PyListBuilder list;
    for (const auto& value : *results) {
      list.add(py_promise(value));
    }
    promises = list.finish();
  }
  auto request = py_request(signature, args);
  answer = call_seam("build", {key.get(), request.get(), promises.get()});
  return read_entry(answer, op, info);
}

} // namespace torus
