#include "dispatch.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "checks.h"
#include "device.h"
#include "fallback.h"
#include "launch.h"
#include "limit.h"
#include "origins.h"
#include "program.h"
#include "trace.h"

namespace torus {
namespace {

std::atomic<bool> blocking{false};

// An array whose memory the program may take: `array` when nobody else has it, else a copy, whose bytes are added up.
PyRef give_up(PyObject* array, const ValuePtr& value, c10::DeviceIndex device, int64_t& copied) {
  // The storage and the signature hold the value, the value and this call hold the array.
  forget_launched(device, array);
  if (value.use_count() <= 2 && Py_REFCNT(array) <= 2) {
    Py_INCREF(array);
    return PyRef(array);
  }
  copied += value->layout()->nbytes();
  auto index = checked(PyLong_FromLong(device));
  return call_seam("copy_to_device", {array, index.get()});
}

PyRef collect_inputs(const Entry& entry, const Signature& signature, int64_t& copied) {
  for (auto index : entry.inputs) {
    signature.tensors()[static_cast<size_t>(index)].value->array(); // runs what is pending; it may let go of the GIL
  }
  const auto count = entry.inputs.size() + (entry.takes_pack ? 1 : 0);
  auto list = checked(PyList_New(static_cast<Py_ssize_t>(count)));
  Py_ssize_t position = 0;
  for (auto index : entry.inputs) {
    auto* array = signature.tensors()[static_cast<size_t>(index)].value->array();
    Py_INCREF(array);
    PyList_SET_ITEM(list.get(), position++, array);
  }
  for (auto place : entry.donated) {
    const auto& value = signature.tensors()[static_cast<size_t>(entry.inputs[static_cast<size_t>(place)])].value;
    auto given = give_up(PyList_GET_ITEM(list.get(), place), value, signature.device(), copied);
    PyList_SetItem(list.get(), place, given.release());
  }
  if (entry.takes_pack) {
    const bool may_repeat = signature.random_word() < 0; // random states never do
    PyList_SET_ITEM(list.get(), position, upload_pack(signature.pack(), signature.device(), may_repeat).release());
  }
  return list;
}

// Stores the program's results: new tensors are returned, written storages get their new value.
std::vector<at::Tensor> take_results(const Entry& entry, const Signature& signature, PyObject* results) {
  std::vector<at::Tensor> fresh;
  Py_ssize_t position = 0;
  for (const auto& plan : entry.results) {
    if (plan.none) {
      fresh.emplace_back();
      continue;
    }
    auto* array = PyList_GET_ITEM(results, position++);
    Py_INCREF(array);
    auto value = c10::make_intrusive<Value>(array, plan.layout, signature.device());
    note_origin(*value, entry.op->name.c_str());
    if (plan.writes >= 0) {
      state_of(*signature.tensors()[static_cast<size_t>(plan.writes)].tensor).value = std::move(value);
    } else {
      fresh.push_back(make_tensor(std::move(value), plan.dtype, plan.sizes, plan.strides));
    }
  }
  return fresh;
}

void push_returns(const Entry& entry, std::vector<at::Tensor> fresh, size_t arguments, torch::jit::Stack* stack) {
  c10::SmallVector<c10::IValue, 4> returns;
  size_t next = 0;
  const auto args = torch::jit::last(*stack, arguments);
  for (const auto& plan : entry.returns) {
    if (plan.kind == ReturnPlan::kArgument) {
      returns.push_back(args[static_cast<size_t>(plan.index)]);
    } else if (plan.kind == ReturnPlan::kNumber) {
      returns.emplace_back(plan.count);
    } else if (plan.kind == ReturnPlan::kFresh) {
      returns.emplace_back(std::move(fresh.at(next++)));
    } else {
      c10::List<at::Tensor> list;
      for (int64_t i = 0; i < plan.count; ++i) {
        list.push_back(std::move(fresh.at(next++)));
      }
      returns.emplace_back(std::move(list));
    }
  }
  torch::jit::drop(*stack, arguments);
  for (auto& value : returns) {
    stack->push_back(std::move(value));
  }
}

// Two arguments of one storage, one of them written: PyTorch forbids partial overlap. Offsets are no part of the
// signature, so ask each time.
void check_overlaps(const Signature& signature) {
  const auto& tensors = signature.tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto slot = static_cast<size_t>(tensors[i].slot);
    if (slot == i) {
      continue;
    }
    for (size_t j = 0; j < i; ++j) {
      if (static_cast<size_t>(tensors[j].slot) == slot && tensors[i].written != tensors[j].written) {
        at::assert_no_partial_overlap(*tensors[i].tensor, *tensors[j].tensor);
        if (signature.op().forbids_aliases) {
          at::assert_no_overlap(*tensors[i].tensor, *tensors[j].tensor);
        }
      }
    }
  }
}

Py_ssize_t count_arrays(const Entry& entry) {
  return std::count_if(entry.results.begin(), entry.results.end(), [](const ResultPlan& plan) { return !plan.none; });
}

} // namespace

std::vector<at::Tensor> launch(Entry& entry, Signature& signature, bool deferred) {
  signature.draw_random_state();
  load_program(entry);
  int64_t copied = 0;
  auto inputs = collect_inputs(entry, signature, copied);
  admit(signature.device(), entry, copied);
  auto results = launch_program(entry.execute.get(), entry.handlers.get(), inputs.get(), signature.device());
  if (entry.checks && deferred) {
    defer_checks(entry, results.get(), count_arrays(entry));
  } else if (entry.checks) {
    raise_failed_checks(entry, results.get(), count_arrays(entry));
  }
  auto fresh = take_results(entry, signature, results.get());
  if (blocking.load(std::memory_order_relaxed)) {
    auto device = checked(PyLong_FromLong(signature.device()));
    call_seam("synchronize", {device.get()});
  }
  return fresh;
}

namespace {

void resize_outputs(const Entry& entry, at::ArrayRef<c10::IValue> args, const OpInfo& info) {
  size_t position = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    if (info.args[i].result_only && args[i].isTensor()) {
      for (const auto& resize : entry.resizes) {
        if (static_cast<size_t>(resize.argument) == position &&
            at::native::resize_output(args[i].toTensor(), resize.sizes) && !resize.contiguous) {
          args[i].toTensor().as_strided_(resize.sizes, resize.strides);
        }
      }
      ++position;
    }
  }
}

struct Registration {
  // The kernel of each op, by name: a rule that replaces another takes its place without PyTorch's warning.
  std::unordered_map<std::string, std::unique_ptr<c10::RegistrationHandleRAII>> kernels;
  // Overloads of PyTorch's ops by base name, made once: other libraries register theirs one by one.
  std::unordered_map<std::string, std::vector<c10::OperatorName>> overloads;

  Registration() {
    for (auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
      if (name.name.rfind("aten::", 0) == 0) {
        overloads[name.name].push_back(name);
      }
    }
  }
};

Registration& registration() {
  static auto* r = new Registration();
  return *r;
}

bool same_argument(const c10::Argument& a, const c10::Argument& b) {
  return a.name() == b.name() && *a.type() == *b.type();
}

bool writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// A factory's out= form takes from the tensor it writes what the functional form is told.
bool names_result_options(const c10::Argument& argument) {
  const auto& name = argument.name();
  return argument.kwarg_only() && (name == "dtype" || name == "layout" || name == "device" || name == "pin_memory");
}

// Whether `variant` has the arguments of `base`, with written ones after them. An out= form writes the arguments that
// `base` writes, too.
bool is_variant(const c10::FunctionSchema& base, const c10::FunctionSchema& variant, bool out) {
  const bool factory = base.argumentIndexWithName("device").has_value();
  std::vector<c10::Argument> wanted;
  for (const auto& argument : base.arguments()) {
    if (!out || !factory || !names_result_options(argument)) {
      wanted.push_back(argument);
    }
  }
  const auto& got = variant.arguments();
  if (got.size() < wanted.size() || (!out && got.size() != wanted.size())) {
    return false;
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!same_argument(wanted[i], got[i]) || (out && writes(got[i]) != writes(wanted[i]))) {
      return false;
    }
  }
  for (size_t i = wanted.size(); i < got.size(); ++i) {
    if (!writes(got[i])) {
      return false;
    }
  }
  return out ? got.size() > wanted.size() : std::any_of(got.begin(), got.end(), writes);
}

void register_kernel(const c10::OperatorHandle& op, OpForm form, const RuleTraits& rule, bool has_functional,
                     const c10::OperatorHandle& functional, std::vector<std::string>& names) {
  auto* info = new OpInfo(op.schema(), form, rule); // lives as long as its registration: for ever
  if (has_functional) {
    info->functional = functional;
  }
  auto& kernel = registration().kernels[info->name];
  kernel.reset();
  kernel = std::make_unique<c10::RegistrationHandleRAII>(c10::Dispatcher::singleton().registerImpl(
      op.operator_name(), c10::DispatchKey::PrivateUse1,
      c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(info)), std::nullopt, nullptr, info->name));
  names.push_back(info->name);
}

} // namespace

Counters& counters() {
  static auto* c = new Counters();
  return *c;
}

void set_launch_blocking(bool value) {
  blocking.store(value);
}

bool launch_blocking() {
  return blocking.load();
}

namespace {

// False when these arguments have no lowering.
bool run_program(const OpInfo& info, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  GilGuard gil;
  drain_garbage();
  const auto arguments = info.args.size();
  for (int attempt = 0;; ++attempt) {
    const auto args = torch::jit::last(*stack, arguments);
    Signature signature(info, args);
    if (info.forbids_overlap && signature.tensors().size() > 1) {
      check_overlaps(signature);
    }
    const auto hash = hash_key(signature.key());
    auto* entry = program_table().find(signature.key(), hash);
    if (entry == nullptr) {
      auto made = make_entry(signature, op, args, recording());
      made->key = signature.key();
      entry = program_table().insert(std::move(made), hash);
    }
    if (entry->kind == Entry::kProgram && !info.rule.fits.empty()) {
      const auto& result = entry->results.front();
      const auto numel = args.front().isTensor() ? args.front().toTensor().numel() : result.layout->numel;
      check_fits(info, args, result.dtype, numel);
    }
    if (entry->kind == Entry::kProgram && recording()) {
      push_returns(*entry, record(*entry, signature), arguments, stack);
      return true;
    }
    if (entry->kind == Entry::kProgram) {
      push_returns(*entry, launch(*entry, signature), arguments, stack);
      return true;
    }
    if (entry->kind == Entry::kFallback) {
      return false;
    }
    TORCH_INTERNAL_ASSERT(attempt == 0, info.name, ": an out= tensor does not keep the sizes it was given");
    resize_outputs(*entry, args, info);
  }
}

} // namespace

namespace {

bool has_bits(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && (value.toTensor().is_conj() || value.toTensor().is_neg());
}

// Products take conjugated and negated views as they are, since BLAS knows them; programs do not.
void resolve_bits(const OpInfo& info, torch::jit::Stack* stack) {
  const auto first = stack->size() - info.args.size();
  for (size_t i = 0; i < info.args.size(); ++i) {
    auto& value = (*stack)[first + i];
    if (!info.args[i].written && has_bits(value)) {
      value = value.toTensor().resolve_conj().resolve_neg();
    }
  }
}

} // namespace

void run(const OpInfo& info, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  resolve_bits(info, stack);
  if (!run_program(info, op, stack)) {
    fall_back_to_cpu(op, stack); // without the GIL: the copies take it themselves
  }
}

Kernel::Kernel(const OpInfo* info) : info_(info) {
  // These reduce in the dtype of the tensor that they write, unless told another.
  const auto base = info->name.substr(0, info->name.find('.'));
  const bool follows = base == "aten::sum" || base == "aten::prod" || base == "aten::nansum" ||
                       base == "aten::cumsum" || base == "aten::cumprod" || base == "aten::cumsum_" ||
                       base == "aten::cumprod_";
  if (follows && info->form != OpForm::kFunctional) {
    for (size_t i = 0; i < info->args.size(); ++i) {
      dtype_arg_ = info->args[i].is_dtype ? static_cast<int>(i) : dtype_arg_;
      written_arg_ = info->args[i].written ? static_cast<int>(i) : written_arg_;
    }
  }
}

void Kernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  if (dtype_arg_ >= 0) {
    const auto first = stack->size() - info_->args.size();
    auto& dtype = (*stack)[first + static_cast<size_t>(dtype_arg_)];
    if (dtype.isNone()) {
      dtype = (*stack)[first + static_cast<size_t>(written_arg_)].toTensor().scalar_type();
    }
  }
  run(*info_, op, stack);
}

std::vector<std::string> register_rule(const RuleTraits& rule) {
  std::vector<std::string> names;
  const auto base_name = parse_name(rule.name);
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto base = dispatcher.findSchema(base_name);
  if (!base.has_value()) {
    return names; // another PyTorch version: the caller reports it
  }
  const auto& schema = base->schema();
  // The out= form alone, where the functional form is written with other ops.
  const auto composite = dispatcher.findSchema({base_name.name, ""});
  if (base_name.overload_name == "out" && composite.has_value() && is_variant(composite->schema(), schema, true)) {
    register_kernel(*base, OpForm::kOut, rule, true, *composite, names);
    return names;
  }
  const bool in_place = std::any_of(schema.arguments().begin(), schema.arguments().end(), writes);
  const bool copies = rule.name == "aten::_copy_from";
  register_kernel(*base, in_place ? OpForm::kInPlace : OpForm::kFunctional, rule, !in_place && !copies, *base, names);
  auto& overloads = registration().overloads;
  if (in_place) {
    // An op that writes some of its arguments has an out= form where PyTorch also has it without these writes.
    const auto pure = dispatcher.findSchema({base_name.name + "_functional", base_name.overload_name});
    for (const auto& name : overloads[base_name.name]) {
      const auto op = dispatcher.findSchema(name);
      if (pure.has_value() && op.has_value() && is_variant(schema, op->schema(), true)) {
        register_kernel(*op, OpForm::kOut, rule, true, *pure, names);
      }
    }
    return names;
  }
  for (const auto& name : overloads[base_name.name + "_"]) {
    const auto op = dispatcher.findSchema(name);
    if (op.has_value() && name.overload_name == base_name.overload_name && is_variant(schema, op->schema(), false)) {
      register_kernel(*op, OpForm::kInPlace, rule, true, *base, names);
    }
  }
  for (const auto& name : overloads[base_name.name]) {
    const auto op = dispatcher.findSchema(name);
    if (op.has_value() && is_variant(schema, op->schema(), true)) {
      register_kernel(*op, OpForm::kOut, rule, true, *base, names);
    }
  }
  return names;
}

} // namespace torus
