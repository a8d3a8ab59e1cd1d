// The Python face of the core: torus._C.
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/utils/pybind.h>

#include "cpu_strides.h"
#include "device.h"
#include "dispatch.h"
#include "explanation.h"
#include "failure.h"
#include "fallback.h"
#include "fusion.h"
#include "generator.h"
#include "graph.h"
#include "hooks.h"
#include "launch.h"
#include "limit.h"
#include "origins.h"
#include "plan.h"
#include "program.h"
#include "runtime_seam.h"
#include "storage.h"

namespace py = pybind11;

namespace torus {
namespace {

std::unordered_set<std::string> to_set(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

using BoundsTuple = std::tuple<std::string, double, double, bool>;
using OrderTuple = std::tuple<std::string, std::string, bool, std::string>;

Bounds to_bounds(const BoundsTuple& given) {
  const auto& [words, low, high, open] = given;
  return {words, low, high, open};
}

Order to_order(const OrderTuple& given) {
  const auto& [low, high, strict, words] = given;
  return {low, high, strict, words};
}

std::vector<std::string> register_rule_py(const std::string& name, const std::vector<std::string>& fixed,
                                          const std::vector<std::string>& runtime,
                                          const std::unordered_map<std::string, std::vector<double>>& known,
                                          const std::unordered_map<std::string, BoundsTuple>& bounds,
                                          const std::optional<OrderTuple>& order, const std::vector<std::string>& fits,
                                          const std::vector<std::string>& mutates, bool wide, bool host_tensors,
                                          bool implicit_random, bool range_length) {
  RuleTraits rule;
  rule.name = name;
  rule.static_args = to_set(fixed);
  rule.runtime_args = to_set(runtime);
  rule.known = known;
  for (const auto& [argument, b] : bounds) {
    rule.bounds.emplace(argument, to_bounds(b));
  }
  if (order.has_value()) {
    rule.order = to_order(*order);
  }
  rule.fits = to_set(fits);
  rule.mutates = mutates;
  rule.wide = wide;
  rule.host_tensors = host_tensors;
  rule.implicit_random = implicit_random;
  rule.range_length = range_length;
  return register_rule(rule);
}

py::dict counters_py() {
  py::dict result;
  result["programs"] = counters().programs.load();
  result["host_reads"] = counters().host_reads.load();
  result["host_writes"] = counters().host_writes.load();
  result["fallbacks"] = counters().fallbacks.load();
  result["flushes"] = counters().flushes.load();
  return result;
}

void reset_counters() {
  counters().programs = 0;
  counters().host_reads = 0;
  counters().host_writes = 0;
  counters().fallbacks = 0;
  counters().flushes = 0;
}

py::dict memory_stats_py(int device) {
  const auto stats = memory_stats(static_cast<c10::DeviceIndex>(device));
  py::dict result;
  result["allocated_bytes.current"] = stats.current;
  result["allocated_bytes.peak"] = stats.peak;
  result["allocated_bytes.allocated"] = stats.allocated;
  result["allocated_bytes.freed"] = stats.freed;
  result["values.current"] = stats.count;
  return result;
}

// The runtime's array behind a tensor that spans its storage in the order of memory; None while nothing has been
// written.
py::object array_of(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.device().type() == kDevice, "expected a tpu tensor, got one on ", tensor.device());
  auto& state = state_of(tensor);
  if (!state.value) {
    return py::none();
  }
  return py::reinterpret_borrow<py::object>(state.value->array());
}

at::Tensor tensor_from_array(const py::object& array, at::ScalarType dtype, const std::vector<int64_t>& sizes,
                             int device) {
  auto value = c10::make_intrusive<Value>(array.inc_ref().ptr(), intern_layout(dtype, sizes),
                                          static_cast<c10::DeviceIndex>(device));
  note_origin(*value, "an array of the runtime");
  return make_tensor(std::move(value), dtype, sizes, torus::contiguous_strides(sizes));
}

// The ops recorded on the tensor's trace, the number of its own result, and the device; None for a computed tensor.
py::object pending_ops(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.device().type() == kDevice, "expected a tpu tensor, got one on ", tensor.device());
  auto& state = state_of(tensor);
  return state.value ? py::reinterpret_steal<py::object>(describe_pending(*state.value).release()) : py::none();
}

} // namespace
} // namespace torus

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace torus;
  m.doc() = "The native core of the tpu device.";
  m.def("initialize", [](const py::module_& seam, int count) {
    set_seam(seam.ptr());
    set_device_count(static_cast<c10::DeviceIndex>(count));
    register_allocator();
    register_guard();
    register_hooks();
  });
  m.def("register_rule", &register_rule_py, py::arg("name"), py::arg("static"), py::arg("runtime"), py::arg("known"),
        py::arg("bounds"), py::arg("order"), py::arg("fits"), py::arg("mutates"), py::arg("wide"),
        py::arg("host_tensors"), py::arg("implicit_random"), py::arg("range_length"));
  m.def("device_count", [] { return static_cast<int>(device_count()); });
  m.def("set_device_count", [](int count) { set_device_count(static_cast<c10::DeviceIndex>(count)); });
  m.def("current_device", [] { return static_cast<int>(current_device()); });
  m.def("set_device", [](int index) { set_current_device(static_cast<c10::DeviceIndex>(index)); });
  m.def("exchange_device",
        [](int index) { return static_cast<int>(exchange_device(static_cast<c10::DeviceIndex>(index))); });
  m.def("default_generator", [](int index) { return default_generator(static_cast<c10::DeviceIndex>(index)); });
  m.def("memory_stats", &memory_stats_py);
  m.def("reset_peak_memory_stats", [](int device) { reset_peak_memory(static_cast<c10::DeviceIndex>(device)); });
  m.def("reset_accumulated_memory_stats",
        [](int device) { reset_accumulated_memory(static_cast<c10::DeviceIndex>(device)); });
  m.def("memory_limit", [](int device) { return memory_limit(static_cast<c10::DeviceIndex>(device)); });
  m.def("limit_memory",
        [](int device, int64_t nbytes) { limit_memory(static_cast<c10::DeviceIndex>(device), nbytes); });
  m.def("live_values", [](int device) {
    return py::reinterpret_steal<py::list>(describe_live(static_cast<c10::DeviceIndex>(device)));
  });
  m.def("drain_garbage", &drain_garbage);
  m.def("counters", &counters_py);
  m.def("reset_counters", &reset_counters);
  m.def("fallbacks", &fallback_counts);
  m.def("reset_fallbacks", &reset_fallback_counts);
  m.def("fallback_mode", [] { return static_cast<int>(fallback_mode()); });
  m.def("set_fallback_mode", [](int mode) { set_fallback_mode(static_cast<FallbackMode>(mode)); });
  m.def("precision", &precision);
  m.def("set_precision", &set_precision);
  m.def("emulate_allowed_passes", &emulate_allowed_passes);
  m.def("launch_blocking", &launch_blocking);
  m.def("set_launch_blocking", &set_launch_blocking);
  m.def("clear_programs", [] {
    flush_all(Cause::kSynchronize);
    program_table().clear();
    clear_plans();
  });
  m.def("signature_count", [] { return program_table().size(); });
  m.def("recording", &recording);
  m.def("set_recording", &set_recording);
  m.def("set_fuse_mode", [](int mode) { set_fuse_mode(static_cast<FuseMode>(mode)); });
  m.def("fuse_mode", [] { return static_cast<int>(fuse_mode()); });
  m.def("flush", [](bool at_exit) { flush_all(at_exit ? Cause::kExit : Cause::kSynchronize); });
  m.def("raise_unreported_failure", &raise_unreported_failure);
  m.def("fused_ready", [](uint64_t id, const py::object& execute, const py::object& handlers, int64_t bytes) {
    fused_ready(id, execute.ptr(), handlers.ptr(), bytes);
  });
  m.def("fused_put_off", &fused_put_off);
  m.def("fused_failed", &fused_failed);
  m.def("trace_plans", &plan_count);
  m.def("end_storm", &end_storm);
  m.def("set_explaining", &set_explaining);
  m.def("pending_ops", &pending_ops);
  m.def("elementwise_strides", &elementwise_strides);
  m.def("array_of", &array_of);
  m.def("tensor_from_array",
        [](const py::object& array, const py::object& dtype, const std::vector<int64_t>& sizes, int device) {
          return tensor_from_array(array, reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type, sizes, device);
        });
  py::class_<Graph>(m, "Graph")
      .def(py::init<const std::string&, const std::string&, uint32_t>(), py::arg("name"), py::arg("kinds"),
           py::arg("draws"))
      .def("run", &Graph::run)
      .def("prepare", &Graph::prepare);
  m.def("last_launched", [](int device) -> py::object {
    auto* array = last_launched(static_cast<c10::DeviceIndex>(device));
    return array == nullptr ? py::none() : py::reinterpret_borrow<py::object>(array);
  });
}
