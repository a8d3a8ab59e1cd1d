// An immutable array on the device, and the layout in which it is stored.
#pragma once

#include <Python.h>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <vector>

namespace torus {

// What a program must know of an array it takes: element type and shape. Interned, so that pointers compare.
struct Layout {
  c10::ScalarType dtype;
  std::vector<int64_t> shape;
  int64_t numel;
  uint64_t id;

  int64_t nbytes() const {
    return numel * static_cast<int64_t>(c10::elementSize(dtype));
  }
};

const Layout* intern_layout(c10::ScalarType dtype, c10::IntArrayRef shape);

class Trace;

// That a value which is there may still turn out to be wrong: a check of the program that computed it is not seen yet.
class Doubt : public c10::intrusive_ptr_target {
 public:
  // Why result `number` of the program failed, borrowed, or null. Waits for the program, and may let go of the GIL.
  virtual PyObject* error_of(int32_t number) = 0;
};

// Holds the Python array of the runtime, or stands for a result that a trace will compute, or for one that it failed
// to. Values are created and read under the GIL, and may die without it.
class Value : public c10::intrusive_ptr_target {
 public:
  // Steals the reference to `array`.
  Value(PyObject* array, const Layout* layout, c10::DeviceIndex device);
  // Result `slot` of a trace, which outlives its pending values.
  Value(Trace* trace, int32_t slot, const Layout* layout, c10::DeviceIndex device);
  ~Value() override;

  // Runs the trace if need be, and waits for open checks; raises what made it fail.
  PyObject* array() {
    return array_ != nullptr && !doubt_ ? array_ : materialize();
  }
  // The same object where the value is ready, also while checks are open: to look at, not to read.
  PyObject* array_in_doubt() const {
    return array_;
  }
  bool ready() const {
    return array_ != nullptr;
  }
  bool pending() const {
    return trace_ != nullptr;
  }
  const Layout* layout() const {
    return layout_;
  }
  c10::DeviceIndex device() const {
    return device_;
  }
  Trace* trace() const {
    return trace_;
  }
  int32_t slot() const {
    return slot_;
  }
  PyObject* error() const {
    return error_;
  }
  void move_to(Trace* trace, int32_t slot) {
    trace_ = trace;
    slot_ = slot;
  }
  // Ends the pending state; both take a reference of their own. `doubt`: of result `number` of a program.
  void fulfill(PyObject* array, c10::intrusive_ptr<Doubt> doubt = {}, int32_t number = -1);
  void poison(PyObject* error);
  // Ends the doubt; the value may have failed then. Needs somebody else to hold the value.
  void settle();

  // What runs the trace of a pending value; it gives the array or throws.
  static void set_materializer(PyObject* (*materializer)(Value&));

  // Where a trace keeps this value among those that it reads; a hint that the trace checks.
  int32_t external_hint = -1;

 private:
  PyObject* materialize();

  PyObject* array_ = nullptr;
  PyObject* error_ = nullptr;
  Trace* trace_ = nullptr;
  int32_t slot_ = -1;
  c10::intrusive_ptr<Doubt> doubt_;
  const Layout* layout_;
  c10::DeviceIndex device_;
};

using ValuePtr = c10::intrusive_ptr<Value>;

// Drops a Python reference now if this thread has the GIL, else at the next call of drain_garbage().
void release_reference(PyObject* object);
// Needs the GIL.
void drain_garbage();

struct MemoryStats {
  int64_t current = 0;
  int64_t peak = 0;
  int64_t allocated = 0;
  int64_t freed = 0;
  int64_t count = 0;
};

MemoryStats memory_stats(c10::DeviceIndex device);
void reset_peak_memory(c10::DeviceIndex device);
// The most that a device may hold; 0: as much as there is.
void set_memory_limit(c10::DeviceIndex device, int64_t nbytes);
int64_t memory_limit(c10::DeviceIndex device);
// Counts, for the peak, what something needs beside what is alive; false, and not counted, where a limit forbids it.
bool make_room(c10::DeviceIndex device, int64_t nbytes);
void reset_accumulated_memory(c10::DeviceIndex device);

} // namespace torus
