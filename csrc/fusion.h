// Running a trace: as one or a few fused programs where they are compiled, else op by op.
//
// A trace is looked up by its structure (ops, wiring, which results are still wanted, which arguments nobody else
// holds). Its plan cuts it into segments; equal segments of any trace share one fused program. A program is compiled in
// the background once its segment has come again, or was found on disk; until then its ops run one by one.
#pragma once

#include "trace.h"

namespace torus {

// In instructions of StableHLO (Recipe.cost): what one fused program may hold, and what may be recorded before it must
// run. Measured on a 6-layer GPT: between 400 and 8,000 the step takes the same time, and the largest single compile
// grows from 2 to 9 seconds; small models want few programs.
constexpr int64_t kLargestSegment = 1000;
constexpr int64_t kLargestTrace = 8000;
constexpr size_t kMostNodes = 2048;
// Memory that may wait for a trace: arguments that nobody else holds.
constexpr int64_t kMostWaitingBytes = int64_t{32} << 20;

// Gives every value of the trace its array or its failure, and empties the trace.
void run_trace(Trace& trace, Cause cause);

// How many nodes to run when a trace is full: whole turns of the loop at its end, if there is one.
size_t stable_end(const Trace& trace);

enum class FuseMode : int { kNever, kBackground, kForeground };
void set_fuse_mode(FuseMode mode);
FuseMode fuse_mode();

// A fused program is there (called by Python, also from other threads), or could not be made.
void fused_ready(uint64_t id, PyObject* execute, PyObject* handlers, int64_t extra_bytes);
// The program is being made ready; until then the ops run one by one.
void fused_put_off(uint64_t id);
void fused_failed(uint64_t id);

} // namespace torus
