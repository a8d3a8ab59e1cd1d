#include "value.h"

#include <thread>

#include "check.h"
#include "origins.h"
#include "runtime_seam.h"

using namespace torus;

namespace {

const Layout* bytes(int64_t count) {
  return intern_layout(at::kByte, {count});
}

ValuePtr value_of(int64_t nbytes, c10::DeviceIndex device) {
  Py_INCREF(Py_None);
  return c10::make_intrusive<Value>(Py_None, bytes(nbytes), device);
}

// Runs `action` on a thread that does not have the GIL, while nobody has it.
template <typename Action> void without_gil(Action action) {
  auto* state = PyEval_SaveThread();
  std::thread(action).join();
  PyEval_RestoreThread(state);
}

} // namespace

TEST(memory_is_accounted_for_each_device) {
  constexpr c10::DeviceIndex kFirst = 10;
  constexpr c10::DeviceIndex kSecond = 11;
  auto small = value_of(100, kFirst);
  auto large = value_of(1000, kFirst);
  auto elsewhere = value_of(7, kSecond);
  EXPECT_EQ(memory_stats(kFirst).current, 1100);
  EXPECT_EQ(memory_stats(kFirst).count, 2);
  EXPECT_EQ(memory_stats(kSecond).current, 7);
  large.reset();
  const auto stats = memory_stats(kFirst);
  EXPECT_EQ(stats.current, 100);
  EXPECT_EQ(stats.peak, 1100);
  EXPECT_EQ(stats.allocated, 1100);
  EXPECT_EQ(stats.freed, 1000);
  EXPECT_EQ(stats.count, 1);
}

TEST(memory_accounts_are_reset) {
  constexpr c10::DeviceIndex kDeviceIndex = 12;
  auto kept = value_of(10, kDeviceIndex);
  value_of(90, kDeviceIndex).reset();
  EXPECT_EQ(memory_stats(kDeviceIndex).peak, 100);
  reset_peak_memory(kDeviceIndex);
  EXPECT_EQ(memory_stats(kDeviceIndex).peak, 10);
  EXPECT_EQ(memory_stats(kDeviceIndex).allocated, 100);
  reset_accumulated_memory(kDeviceIndex);
  EXPECT_EQ(memory_stats(kDeviceIndex).allocated, 0);
  EXPECT_EQ(memory_stats(kDeviceIndex).freed, 0);
  EXPECT_EQ(memory_stats(kDeviceIndex).current, 10);
  kept.reset();
  EXPECT_EQ(memory_stats(kDeviceIndex).current, 0);
  EXPECT_EQ(memory_stats(kDeviceIndex).freed, 10);
}

TEST(a_limit_refuses_what_is_too_much) {
  constexpr c10::DeviceIndex kDeviceIndex = 16;
  const auto kept = value_of(60, kDeviceIndex);
  EXPECT_EQ(memory_limit(kDeviceIndex), 0);
  EXPECT(make_room(kDeviceIndex, 1000));
  EXPECT_EQ(memory_stats(kDeviceIndex).peak, 1060);
  EXPECT_EQ(memory_stats(kDeviceIndex).current, 60);
  reset_peak_memory(kDeviceIndex);
  set_memory_limit(kDeviceIndex, 100);
  EXPECT(!make_room(kDeviceIndex, 41));
  EXPECT_EQ(memory_stats(kDeviceIndex).peak, 60);
  EXPECT(make_room(kDeviceIndex, 40));
  EXPECT_EQ(memory_stats(kDeviceIndex).peak, 100);
  set_memory_limit(kDeviceIndex, 50);
  EXPECT(make_room(kDeviceIndex, 0)); // what asks for nothing may go on where there is too much already
  set_memory_limit(kDeviceIndex, 0);
  EXPECT(make_room(kDeviceIndex, 41));
  EXPECT_THROWS(set_memory_limit(-1, 1), "");
}

TEST(live_values_know_what_made_them) {
  constexpr c10::DeviceIndex kDeviceIndex = 17;
  const auto before = value_of(1, kDeviceIndex);
  note_origin(*before, "not asked for");
  keep_origins(true);
  const auto kept = value_of(20, kDeviceIndex);
  note_origin(*kept, "kept");
  auto dropped = value_of(300, kDeviceIndex);
  note_origin(*dropped, "dropped");
  EXPECT_EQ(live_values(kDeviceIndex).size(), 2u);
  dropped.reset();
  const auto live = live_values(kDeviceIndex);
  EXPECT_EQ(live.size(), 1u);
  EXPECT_EQ(live[0].layout->nbytes(), 20);
  EXPECT_EQ(std::string(live[0].origin.what), "kept");
  EXPECT_EQ(live_values(16).size(), 0u);
  keep_origins(false);
  EXPECT_EQ(live_values(kDeviceIndex).size(), 0u);
}

TEST(an_empty_value_is_counted_without_bytes) {
  constexpr c10::DeviceIndex kDeviceIndex = 13;
  const auto empty = value_of(0, kDeviceIndex);
  EXPECT_EQ(memory_stats(kDeviceIndex).current, 0);
  EXPECT_EQ(memory_stats(kDeviceIndex).count, 1);
}

TEST(accounts_of_an_impossible_device_are_an_error) {
  EXPECT_THROWS(memory_stats(-1), "");
  EXPECT_THROWS(reset_peak_memory(-1), "");
}

TEST(threads_share_the_accounts) {
  constexpr c10::DeviceIndex kDeviceIndex = 14;
  std::vector<ValuePtr> values;
  for (int i = 0; i < 4000; ++i) {
    values.push_back(value_of(3, kDeviceIndex));
  }
  auto* state = PyEval_SaveThread();
  std::vector<std::thread> threads;
  for (size_t first = 0; first < 4; ++first) {
    threads.emplace_back([&values, first] {
      for (size_t i = first; i < values.size(); i += 4) {
        values[i].reset();
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  PyEval_RestoreThread(state);
  drain_garbage();
  const auto stats = memory_stats(kDeviceIndex);
  EXPECT_EQ(stats.current, 0);
  EXPECT_EQ(stats.count, 0);
  EXPECT_EQ(stats.freed, 12000);
}

TEST(a_reference_is_dropped_at_once_with_the_gil) {
  const PyRef list(PyList_New(0));
  Py_INCREF(list.get());
  release_reference(list.get());
  EXPECT_EQ(Py_REFCNT(list.get()), 1);
  release_reference(nullptr);
}

TEST(a_reference_waits_for_the_gil) {
  const PyRef list(PyList_New(0));
  Py_INCREF(list.get());
  without_gil([&list] { release_reference(list.get()); });
  EXPECT_EQ(Py_REFCNT(list.get()), 2);
  drain_garbage();
  EXPECT_EQ(Py_REFCNT(list.get()), 1);
  drain_garbage(); // and nothing is dropped twice
  EXPECT_EQ(Py_REFCNT(list.get()), 1);
}

TEST(a_value_may_die_without_the_gil) {
  constexpr c10::DeviceIndex kDeviceIndex = 15;
  const PyRef list(PyList_New(0));
  Py_INCREF(list.get());
  auto value = c10::make_intrusive<Value>(list.get(), bytes(5), kDeviceIndex);
  without_gil([&value] { value.reset(); });
  EXPECT_EQ(memory_stats(kDeviceIndex).current, 0);
  EXPECT_EQ(Py_REFCNT(list.get()), 2);
  drain_garbage();
  EXPECT_EQ(Py_REFCNT(list.get()), 1);
}

TEST(references_are_moved_not_copied) {
  PyRef first(PyList_New(0));
  auto* object = first.get();
  PyRef second(std::move(first));
  // cppcheck-suppress accessMoved ; that is the question
  EXPECT(!first);
  EXPECT_EQ(second.get(), object);
  Py_INCREF(object);
  PyRef third(object);
  second = std::move(third);
  EXPECT_EQ(Py_REFCNT(object), 1);
  EXPECT_EQ(second.get(), object);
}

TEST(a_reference_that_is_replaced_is_not_seen_again) {
  // What the old object's end runs must find the new one in place: other threads do, since it may let go of the GIL.
  static PyRef slot;
  static PyObject* seen = nullptr;
  auto* old = PyCapsule_New(&slot, nullptr, [](PyObject*) { seen = slot.get(); });
  slot = PyRef(old);
  Py_INCREF(Py_None);
  slot = PyRef(Py_None);
  EXPECT_EQ(seen, Py_None);
  slot = PyRef();
}
