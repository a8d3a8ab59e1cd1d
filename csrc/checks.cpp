#include "checks.h"

#include <deque>

namespace torus {
namespace {

// So many runs may be ahead of their checks.
constexpr size_t kMostKept = 16;

struct Kept {
  PyRef messages;
  PyRef reports;
};

// Guarded by the GIL.
std::deque<Kept>& kept() {
  static auto* checks = new std::deque<Kept>();
  return *checks;
}

// All reports of a run come at once.
bool is_there(const Kept& check) {
  auto ready = checked(PyObject_CallMethod(PyList_GET_ITEM(check.reports.get(), 0), "is_ready", nullptr));
  return ready.get() == Py_True;
}

} // namespace

void defer_checks(const Entry& entry, PyObject* results, Py_ssize_t first) {
  auto* messages = entry.checks.get();
  auto reports = checked(PyList_GetSlice(results, first, first + PyList_Size(messages)));
  Py_INCREF(messages);
  kept().push_back({PyRef(messages), std::move(reports)});
}

void settle_checks(bool wait) {
  auto& checks = kept();
  while (!checks.empty() && (wait || checks.size() > kMostKept || is_there(checks.front()))) {
    const auto check = std::move(checks.front());
    checks.pop_front();
    call_seam("raise_failed_checks", {check.messages.get(), check.reports.get()});
  }
}

} // namespace torus
