#include "value.h"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "device.h"
#include "origins.h"

namespace torus {
namespace {

struct LayoutKey {
  c10::ScalarType dtype;
  std::vector<int64_t> shape;

  bool operator==(const LayoutKey& other) const {
    return dtype == other.dtype && shape == other.shape;
  }
};

struct LayoutHash {
  size_t operator()(const LayoutKey& key) const {
    size_t h = static_cast<size_t>(key.dtype);
    for (auto size : key.shape) {
      h = h * 0x9E3779B97F4A7C15ULL + static_cast<size_t>(size) + 1;
    }
    return h;
  }
};

struct LayoutTable {
  std::mutex mutex;
  std::unordered_map<LayoutKey, std::unique_ptr<Layout>, LayoutHash> rows;
};

// Globals are leaked on purpose: values may die after static destructors have begun.
LayoutTable& layouts() {
  static auto* table = new LayoutTable();
  return *table;
}

struct Garbage {
  std::mutex mutex;
  std::vector<PyObject*> objects;
  std::atomic<bool> pending{false};
};

Garbage& garbage() {
  static auto* g = new Garbage();
  return *g;
}

struct Accounting {
  std::mutex mutex;
  std::array<MemoryStats, kMaxDevices> devices{};
  std::array<int64_t, kMaxDevices> limits{};
};

Accounting& accounting() {
  static auto* a = new Accounting();
  return *a;
}

void account(c10::DeviceIndex device, int64_t nbytes) {
  auto& a = accounting();
  std::lock_guard<std::mutex> lock(a.mutex);
  auto& stats = a.devices[static_cast<size_t>(device)];
  stats.current += nbytes;
  if (nbytes >= 0) {
    stats.allocated += nbytes;
    stats.count += 1;
    stats.peak = std::max(stats.peak, stats.current);
  } else {
    stats.freed -= nbytes;
    stats.count -= 1;
  }
}

PyObject* (*materialize_value)(Value&) = nullptr;

} // namespace

const Layout* intern_layout(c10::ScalarType dtype, c10::IntArrayRef shape) {
  auto& table = layouts();
  LayoutKey key{dtype, shape.vec()};
  std::lock_guard<std::mutex> lock(table.mutex);
  auto found = table.rows.find(key);
  if (found != table.rows.end()) {
    return found->second.get();
  }
  int64_t numel = 1;
  for (auto size : shape) {
    numel *= size;
  }
  auto layout = std::make_unique<Layout>(Layout{dtype, shape.vec(), numel, table.rows.size() + 1});
  return table.rows.emplace(std::move(key), std::move(layout)).first->second.get();
}

Value::Value(PyObject* array, const Layout* layout, c10::DeviceIndex device)
    : array_(array), layout_(layout), device_(device) {
  account(device_, layout_->nbytes());
}

Value::Value(Trace* trace, int32_t slot, const Layout* layout, c10::DeviceIndex device)
    : trace_(trace), slot_(slot), layout_(layout), device_(device) {}

Value::~Value() {
  if (keeping_origins()) {
    forget_origin(*this);
  }
  if (array_ != nullptr) {
    account(device_, -layout_->nbytes());
  }
  release_reference(array_);
  release_reference(error_);
}

void Value::set_materializer(PyObject* (*materializer)(Value&)) {
  materialize_value = materializer;
}

PyObject* Value::materialize() {
  return materialize_value(*this);
}

void Value::fulfill(PyObject* array, c10::intrusive_ptr<Doubt> doubt, int32_t number) {
  Py_INCREF(array);
  array_ = array;
  doubt_ = std::move(doubt);
  slot_ = number;
  trace_ = nullptr;
  account(device_, layout_->nbytes());
}

void Value::poison(PyObject* error) {
  if (array_ != nullptr) {
    account(device_, -layout_->nbytes());
    release_reference(std::exchange(array_, nullptr));
  }
  Py_INCREF(error);
  error_ = error;
  trace_ = nullptr;
}

void Value::settle() {
  const auto doubt = doubt_;
  auto* error = doubt ? doubt->error_of(slot_) : nullptr;
  if (std::exchange(doubt_, {}) && error != nullptr) {
    poison(error);
  }
}

void release_reference(PyObject* object) {
  if (object == nullptr || !Py_IsInitialized()) {
    return; // the process is going away and so is the array
  }
  if (PyGILState_Check()) {
    Py_DECREF(object);
    return;
  }
  auto& g = garbage();
  std::lock_guard<std::mutex> lock(g.mutex);
  g.objects.push_back(object);
  g.pending.store(true, std::memory_order_release);
}

void drain_garbage() {
  auto& g = garbage();
  if (!g.pending.load(std::memory_order_acquire)) {
    return;
  }
  std::vector<PyObject*> objects;
  {
    std::lock_guard<std::mutex> lock(g.mutex);
    objects.swap(g.objects);
    g.pending.store(false, std::memory_order_release);
  }
  for (auto* object : objects) {
    Py_DECREF(object);
  }
}

MemoryStats memory_stats(c10::DeviceIndex device) {
  auto& a = accounting();
  std::lock_guard<std::mutex> lock(a.mutex);
  return a.devices.at(static_cast<size_t>(device));
}

void reset_peak_memory(c10::DeviceIndex device) {
  auto& a = accounting();
  std::lock_guard<std::mutex> lock(a.mutex);
  auto& stats = a.devices.at(static_cast<size_t>(device));
  stats.peak = stats.current;
}

void set_memory_limit(c10::DeviceIndex device, int64_t nbytes) {
  auto& a = accounting();
  std::lock_guard<std::mutex> lock(a.mutex);
  a.limits.at(static_cast<size_t>(device)) = nbytes;
}

int64_t memory_limit(c10::DeviceIndex device) {
  auto& a = accounting();
  std::lock_guard<std::mutex> lock(a.mutex);
  return a.limits.at(static_cast<size_t>(device));
}

bool make_room(c10::DeviceIndex device, int64_t nbytes) {
  auto& a = accounting();
  std::lock_guard<std::mutex> lock(a.mutex);
  auto& stats = a.devices.at(static_cast<size_t>(device));
  const auto limit = a.limits[static_cast<size_t>(device)];
  const auto needed = stats.current + nbytes;
  if (limit > 0 && nbytes > 0 && needed > limit) {
    return false;
  }
  stats.peak = std::max(stats.peak, needed);
  return true;
}

void reset_accumulated_memory(c10::DeviceIndex device) {
  auto& a = accounting();
  std::lock_guard<std::mutex> lock(a.mutex);
  auto& stats = a.devices.at(static_cast<size_t>(device));
  stats.allocated = 0;
  stats.freed = 0;
}

} // namespace torus
