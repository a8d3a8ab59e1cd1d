#include "device.h"

#include <thread>

#include "check.h"
#include "storage.h"

using namespace torus;

namespace {

// Two devices for one test; the process has one.
struct TwoDevices {
  TwoDevices() {
    set_device_count(2);
  }
  ~TwoDevices() {
    set_current_device(0);
    set_device_count(1);
  }
  TwoDevices(const TwoDevices&) = delete;
  TwoDevices& operator=(const TwoDevices&) = delete;
};

} // namespace

TEST(a_device_without_index_is_the_current_one) {
  TwoDevices two;
  EXPECT_EQ(resolve_device(c10::Device(kDevice)), 0);
  set_current_device(1);
  EXPECT_EQ(resolve_device(c10::Device(kDevice)), 1);
  EXPECT_EQ(resolve_device(c10::Device(kDevice, 0)), 0);
}

TEST(a_device_that_does_not_exist_is_an_error) {
  TwoDevices two;
  EXPECT_THROWS(resolve_device(c10::Device(kDevice, 2)), "tpu:2 does not exist: this process has 2");
  EXPECT_THROWS(resolve_device(c10::Device(kDevice, 2)), "TORUS_DEVICE_COUNT");
  EXPECT_THROWS(set_current_device(5), "tpu:5 does not exist");
  EXPECT_THROWS(set_current_device(-1), "tpu:-1 does not exist");
  EXPECT_THROWS(exchange_device(2), "tpu:2 does not exist");
  EXPECT_EQ(current_device(), 0);
}

TEST(exchanging_gives_the_device_before) {
  TwoDevices two;
  EXPECT_EQ(exchange_device(1), 0);
  EXPECT_EQ(exchange_device(0), 1);
  EXPECT_EQ(exchange_device(-1), 0); // a negative index changes nothing
  EXPECT_EQ(current_device(), 0);
}

TEST(each_thread_has_its_current_device) {
  TwoDevices two;
  set_current_device(1);
  c10::DeviceIndex elsewhere = -1;
  std::thread([&elsewhere] {
    elsewhere = current_device();
    set_current_device(0);
  }).join();
  EXPECT_EQ(elsewhere, 0);
  EXPECT_EQ(current_device(), 1);
}
