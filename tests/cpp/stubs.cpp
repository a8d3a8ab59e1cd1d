// Stands in for what runs traces, which needs the device: the tests of recording say themselves what a run gives.
#include "fusion.h"
#include "place.h"

namespace torus {

void run_trace(Trace&, Cause) {}

size_t stable_end(const Trace& trace) {
  return trace.nodes.size();
}

void report_failure(PyObject*) {}

Place current_place() {
  return {};
}

std::string describe(const Place&) {
  return "";
}

} // namespace torus
