// What the report of a flush is made of (torus.backend.eager.report).
#pragma once

#include "plan.h"

namespace torus {

// What happened while a trace ran, for the report: how each segment ran, and why not fused.
struct Story {
  int64_t programs = 0;
  std::vector<std::pair<const char*, const char*>> segments;
};

// Tells the seam of a flush, while anybody asks.
class Explanation {
 public:
  explicit Explanation(const Trace& trace);
  void tell(const Trace& trace, const Plan& plan, const Story& story, Cause cause, bool known) const;

 private:
  bool active_;
  int64_t start_ = 0;
  int64_t bytes_in_ = 0;
};

// Calls the seam with a description of each flush.
void set_explaining(bool value);
// The recorded ops that a tensor depends on, as Python data.
PyRef describe_pending(const Value& value);

} // namespace torus
