#include "origins.h"

#include <mutex>
#include <unordered_map>

#include "place.h"

namespace torus {
namespace {

struct Origins {
  std::mutex mutex; // nobody who has it waits for the GIL
  std::unordered_map<const Value*, Origin> rows;
};

// Leaked on purpose, as values are.
Origins& origins() {
  static auto* o = new Origins();
  return *o;
}

} // namespace

void keep_origins(bool value) {
  auto& o = origins();
  std::lock_guard<std::mutex> lock(o.mutex);
  origins_asked_for.store(value);
  if (!value) {
    o.rows.clear();
  }
}

void note_origin(const Value& value, const char* what) {
  if (!keeping_origins()) {
    return;
  }
  const auto place = current_place();
  auto& o = origins();
  std::lock_guard<std::mutex> lock(o.mutex);
  o.rows[&value] = {what, place.code.get(), place.line};
}

void forget_origin(const Value& value) {
  auto& o = origins();
  std::lock_guard<std::mutex> lock(o.mutex);
  o.rows.erase(&value);
}

std::vector<LiveValue> live_values(c10::DeviceIndex device) {
  std::vector<LiveValue> found;
  auto& o = origins();
  std::lock_guard<std::mutex> lock(o.mutex);
  for (const auto& [value, origin] : o.rows) {
    if (value->device() == device && value->ready()) {
      found.push_back({value->layout(), origin});
    }
  }
  return found;
}

} // namespace torus
