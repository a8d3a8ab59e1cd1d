#include "open_checks.h"

#include <torch/csrc/Exceptions.h>

#include <deque>
#include <utility>

#include "failure.h"

namespace torus {
namespace {

// So many programs may be ahead of their checks.
constexpr size_t kMostOpen = 16;

// Guarded by the GIL.
std::deque<c10::intrusive_ptr<OpenChecks>>& opened() {
  static auto* checks = new std::deque<c10::intrusive_ptr<OpenChecks>>();
  return *checks;
}

// The failure of a check, or null.
PyRef failure_of(const OpenChecks::Check& check) {
  while (true) {
    try {
      call_seam("raise_failed_checks", {check.entry->checks.get(), check.reports.get()});
      return {};
    } catch (python_error& error) {
      if (!put_off_interrupt(error)) {
        return caught(std::current_exception(), *check.entry, &check.place);
      }
    }
  }
}

} // namespace

OpenChecks::OpenChecks(std::vector<Check> checks, std::shared_ptr<const Guards> guards)
    : checks_(std::move(checks)), guards_(std::move(guards)) {}

OpenChecks::~OpenChecks() {
  for (auto& check : checks_) {
    release_reference(check.reports.release());
    release_reference(check.place.code.release());
  }
  for (auto& error : errors_) {
    release_reference(error.release());
  }
}

PyObject* OpenChecks::error_of(int32_t number) {
  settle();
  for (auto check : (*guards_)[static_cast<size_t>(number)]) {
    if (auto* error = errors_[static_cast<size_t>(check)].get()) {
      return error;
    }
  }
  return nullptr;
}

void OpenChecks::settle() {
  std::vector<PyRef> errors;
  for (const auto& check : checks_) {
    if (settled_) {
      return; // perhaps by another thread, while this one waited
    }
    errors.push_back(failure_of(check));
  }
  if (std::exchange(settled_, true)) {
    return;
  }
  errors_ = std::move(errors);
  for (const auto& error : errors_) {
    if (error) {
      note_failure(error.get());
    }
  }
  deliver_interrupt();
}

bool OpenChecks::are_there() const {
  auto* report = PyList_GET_ITEM(checks_.back().reports.get(), 0); // all of a program come at once
  return settled_ || checked(PyObject_CallMethod(report, "is_ready", nullptr)).get() == Py_True;
}

c10::intrusive_ptr<OpenChecks> open_checks(std::vector<OpenChecks::Check> checks,
                                           std::shared_ptr<const Guards> guards) {
  auto made = c10::make_intrusive<OpenChecks>(std::move(checks), std::move(guards));
  opened().push_back(made);
  return made;
}

void settle_open_checks(bool wait) {
  auto& checks = opened();
  while (!checks.empty() && (wait || checks.size() > kMostOpen || checks.front()->are_there())) {
    const auto first = std::move(checks.front());
    checks.pop_front();
    first->settle();
  }
}

} // namespace torus
