// Device guard, streams and events. The runtime runs programs in the order of their data, so a stream is a name; events
// are real.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <atomic>

#include "device.h"
#include "failure.h"
#include "fusion.h"
#include "launch.h"
#include "runtime_seam.h"
#include "storage.h"

namespace torus {
namespace {

std::atomic<int64_t> next_stream{1};
thread_local std::array<c10::StreamId, 128> current_streams{};

c10::Stream stream_on(c10::Device device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDevice, resolve_device(device)), id);
}

PyRef py_handle(void* event) {
  return event == nullptr ? PyRef((Py_INCREF(Py_None), Py_None))
                          : PyRef((Py_INCREF(static_cast<PyObject*>(event)), static_cast<PyObject*>(event)));
}

class GuardImpl final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override {
    return kDevice;
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {kDevice, exchange_device(resolve_device(device))};
  }
  c10::Device getDevice() const override {
    return {kDevice, current_device()};
  }
  void setDevice(c10::Device device) const override {
    set_current_device(resolve_device(device));
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index() && device.index() >= 0 && device.index() < device_count()) {
      set_current_device(device.index());
    }
  }
  c10::Stream getStream(c10::Device device) const override {
    return stream_on(device, current_streams[static_cast<size_t>(resolve_device(device))]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream_on(device, 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return stream_on(device, next_stream.fetch_add(1));
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return stream_on(device, next_stream.fetch_add(1));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    auto& current = current_streams[static_cast<size_t>(resolve_device(stream.device()))];
    const auto previous = stream_on(stream.device(), current);
    current = stream.id();
    return previous;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return device_count();
  }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits = 0;
    auto& has = capability.capability_data.supported_scalar_types;
    has.has_Bool = has.has_Byte = has.has_Char = has.has_Short = has.has_Int = has.has_Long = 1;
    has.has_UInt16 = has.has_UInt32 = has.has_UInt64 = 1;
    has.has_Half = has.has_BFloat16 = has.has_Float = has.has_Double = has.has_ComplexFloat = has.has_ComplexDouble = 1;
    has.has_Float8_e4m3fn = has.has_Float8_e5m2 = has.has_Float8_e4m3fnuz = has.has_Float8_e5m2fnuz =
        has.has_Float8_e8m0fnu = 1;
    return capability;
  }
  bool queryStream(const c10::Stream& stream) const override {
    GilGuard gil;
    flush_all(Cause::kSynchronize, resolve_device(stream.device()));
    auto* last = last_launched(resolve_device(stream.device()));
    return last == nullptr || call_seam("is_ready", {last}).get() == Py_True;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    synchronizeDevice(stream.device_index());
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    GilGuard gil;
    drain_garbage();
    const auto chosen = index < 0 ? current_device() : index;
    flush_all(Cause::kSynchronize, chosen);
    auto device = checked(PyLong_FromLong(chosen));
    call_seam("synchronize", {device.get()});
    raise_unreported_failure();
  }

  // An event is a Python object of the seam; its handle is an owned reference.
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag flag) const override {
    GilGuard gil;
    flush_all(Cause::kEvent, resolve_device(stream.device()));
    auto* last = last_launched(resolve_device(stream.device()));
    auto timing = PyRef(PyBool_FromLong(flag == c10::EventFlag::BACKEND_DEFAULT));
    auto handle = py_handle(*event);
    auto recorded = call_seam("record_event", {handle.get(), last == nullptr ? Py_None : last, timing.get()});
    const PyRef before(static_cast<PyObject*>(*event)); // goes last: its end may let go of the GIL
    *event = recorded.release();
  }
  void block(void*, const c10::Stream&) const override {} // data dependences already order the work
  bool queryEvent(void* event) const override {
    GilGuard gil;
    auto handle = py_handle(event);
    return call_seam("query_event", {handle.get()}).get() == Py_True;
  }
  void synchronizeEvent(void* event) const override {
    GilGuard gil;
    auto handle = py_handle(event);
    call_seam("synchronize_event", {handle.get()});
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    GilGuard gil;
    auto first = py_handle(start);
    auto second = py_handle(end);
    return PyFloat_AsDouble(call_seam("elapsed_time", {first.get(), second.get()}).get());
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    release_reference(static_cast<PyObject*>(event));
  }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};

} // namespace

void register_guard() {
  static auto* impl = new GuardImpl();
  static c10::impl::DeviceGuardImplRegistrar registrar(kDevice, impl);
}

} // namespace torus
