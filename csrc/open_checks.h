// Index checks of a fused program that has been launched. Nobody waits for them until a result of the program is read
// or goes into another program; then the results fail that depend on a check that failed.
#pragma once

#include <memory>
#include <vector>

#include "trace.h"

namespace torus {

// For each result of a program, the checks that it depends on, in order.
using Guards = std::vector<std::vector<int32_t>>;

class OpenChecks : public Doubt {
 public:
  // The checks of one op, and where it was recorded.
  struct Check {
    const Entry* entry;
    PyRef reports;
    Place place;
  };

  OpenChecks(std::vector<Check> checks, std::shared_ptr<const Guards> guards);
  // Without the GIL, perhaps.
  ~OpenChecks() override;

  PyObject* error_of(int32_t number) override;
  // Waits, and keeps failures for those who ask, and for synchronize(); an interrupt is put off.
  void settle();
  bool are_there() const;

 private:
  std::vector<Check> checks_;
  std::vector<PyRef> errors_;
  std::shared_ptr<const Guards> guards_;
  bool settled_ = false;
};

// The doubt of the results of a program, which is also settled if nobody reads them.
c10::intrusive_ptr<OpenChecks> open_checks(std::vector<OpenChecks::Check> checks, std::shared_ptr<const Guards> guards);

// Settles what is there; `wait`: all.
void settle_open_checks(bool wait);

} // namespace torus
