#include "launch.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "dispatch.h"

namespace torus {
namespace {

// Sends packs of one length to one device: the words are written into a NumPy array that the bound call copies from.
class PackUploader {
 public:
  PackUploader(size_t words, c10::DeviceIndex device) {
    auto count = checked(PyLong_FromSize_t(words));
    auto index = checked(PyLong_FromLong(device));
    auto bound = call_seam("pack_uploader", {count.get(), index.get()});
    const auto item = [&](Py_ssize_t i) {
      auto* object = PyTuple_GET_ITEM(bound.get(), i);
      Py_INCREF(object);
      return PyRef(object);
    };
    call_ = item(0);
    args_ = item(1);
    words_ = static_cast<uint32_t*>(PyLong_AsVoidPtr(PyTuple_GET_ITEM(bound.get(), 2)));
  }

  PyRef upload(c10::ArrayRef<uint32_t> pack) const {
    std::copy(pack.begin(), pack.end(), words_);
    return checked(PyObject_Call(call_.get(), args_.get(), nullptr));
  }

 private:
  PyRef call_;
  PyRef args_;
  uint32_t* words_ = nullptr;
};

// Small arrays of scalars that were sent to the device lately: loops repeat them. Bounded, so that nothing is retained.
// Guarded by the GIL.
class PackCache {
 public:
  // A new reference: the row may be taken over by another thread while the array is in use.
  PyRef get(c10::ArrayRef<uint32_t> pack, c10::DeviceIndex device, bool may_repeat) {
    if (!may_repeat || pack.size() > kLongest) {
      return upload(pack, device);
    }
    uint64_t h = pack.size() + (static_cast<uint64_t>(device) << 32);
    for (auto word : pack) {
      h = (h ^ word) * 0x9E3779B97F4A7C15ULL;
      h ^= h >> 29;
    }
    auto& row = rows_[h % rows_.size()];
    const bool same = row.array && row.device == device && row.words.size() == pack.size() &&
                      std::equal(pack.begin(), pack.end(), row.words.begin());
    if (same) {
      return another(row.array);
    }
    auto array = upload(pack, device);
    // Values that come once would only push out what repeats.
    if (row.seen != h) {
      row.seen = h;
      return array;
    }
    // The row must be whole when its old array goes, which may let go of the GIL.
    auto result = another(array);
    row.words.assign(pack.begin(), pack.end());
    row.device = device;
    row.array = std::move(array);
    return result;
  }

 private:
  static constexpr size_t kLongest = 64;

  struct Row {
    PyRef array;
    std::vector<uint32_t> words;
    c10::DeviceIndex device = -1;
    uint64_t seen = 0; // the hash of the last pack that came here and was not the row's
  };

  static PyRef another(const PyRef& array) {
    Py_INCREF(array.get());
    return PyRef(array.get());
  }

  // An uploader lets go of the GIL while it copies its words, so that a call must have one to itself.
  PyRef upload(c10::ArrayRef<uint32_t> pack, c10::DeviceIndex device) {
    auto& idle = idle_[static_cast<uint64_t>(device) << 32 | pack.size()];
    std::unique_ptr<PackUploader> uploader;
    if (idle.empty()) {
      uploader = std::make_unique<PackUploader>(pack.size(), device);
    } else {
      uploader = std::move(idle.back());
      idle.pop_back();
    }
    auto array = uploader->upload(pack);
    idle.push_back(std::move(uploader));
    return array;
  }

  std::array<Row, 1024> rows_;
  // By length and device.
  std::unordered_map<uint64_t, std::vector<std::unique_ptr<PackUploader>>> idle_;
};

PackCache& pack_cache() {
  static auto* cache = new PackCache();
  return *cache;
}

std::array<PyObject*, 128> last_outputs{};

void remember_launch(c10::DeviceIndex device, PyObject* output) {
  auto& last = last_outputs[static_cast<size_t>(device)];
  Py_INCREF(output);
  auto* previous = last;
  last = output;
  Py_XDECREF(previous);
}

} // namespace

PyRef upload_pack(c10::ArrayRef<uint32_t> words, c10::DeviceIndex device, bool may_repeat) {
  return pack_cache().get(words, device, may_repeat);
}

void load_program(Entry& entry) {
  if (entry.execute) {
    return;
  }
  auto pair = call_seam("load", {entry.recipe.get()});
  for (auto* slot : {&entry.execute, &entry.handlers}) {
    auto* object = PyTuple_GetItem(pair.get(), slot == &entry.execute ? 0 : 1);
    Py_XINCREF(object);
    *slot = checked(object);
  }
}

PyRef launch_program(PyObject* execute_program, PyObject* handlers, PyObject* inputs, c10::DeviceIndex device) {
  auto results = execute(execute_program, handlers, inputs);
  counters().programs.fetch_add(1, std::memory_order_relaxed);
  if (PyList_GET_SIZE(results.get()) > 0) {
    remember_launch(device, PyList_GET_ITEM(results.get(), 0));
  }
  return results;
}

void raise_failed_checks(const Entry& entry, PyObject* results, Py_ssize_t first) {
  auto reports = checked(PyList_GetSlice(results, first, first + PyList_Size(entry.checks.get())));
  call_seam("raise_failed_checks", {entry.checks.get(), reports.get()});
}

PyObject* last_launched(c10::DeviceIndex device) {
  return last_outputs[static_cast<size_t>(device)];
}

bool forget_launched(c10::DeviceIndex device, PyObject* array) {
  auto& last = last_outputs[static_cast<size_t>(device)];
  if (last != array) {
    return false;
  }
  last = nullptr;
  Py_DECREF(array);
  return true;
}

} // namespace torus
