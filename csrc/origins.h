// Which op and which line of the user's program made a value. Known of the values that are made while this is asked
// for.
#pragma once

#include <Python.h>

#include <atomic>
#include <vector>

#include "value.h"

namespace torus {

struct Origin {
  const char* what; // lives as long as the process
  PyObject* code;   // borrowed: a code object that was looked at is kept for ever. Null where there is no line.
  int line;
};

struct LiveValue {
  const Layout* layout;
  Origin origin;
};

inline std::atomic<bool> origins_asked_for{false};

inline bool keeping_origins() {
  return origins_asked_for.load(std::memory_order_relaxed);
}

// What is known is forgotten when this ends.
void keep_origins(bool value);
// Needs the GIL. Does nothing unless origins are kept.
void note_origin(const Value& value, const char* what);
void forget_origin(const Value& value);

// Those of a device that hold an array, and whose origin is known.
std::vector<LiveValue> live_values(c10::DeviceIndex device);

} // namespace torus
