#include "storage.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "check.h"

using namespace torus;

namespace {

uintptr_t address_of(const c10::DataPtr& pointer) {
  return reinterpret_cast<uintptr_t>(pointer.get());
}

// The signal that ends a child process which runs `action`; 0 when it lives through it.
template <typename Action> int signal_of_child(Action action) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    signal(SIGSEGV, SIG_DFL); // a sanitizer's own handler would report what is meant to happen
    action();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

} // namespace

TEST(addresses_are_unique_aligned_and_disjoint) {
  std::vector<c10::DataPtr> live;
  for (const size_t nbytes : {0, 1, 63, 64, 65, 4096, 1000000}) {
    for (int i = 0; i < 20; ++i) {
      live.push_back(allocate_on(nbytes, 0));
      EXPECT_EQ(address_of(live.back()) % 64, uintptr_t{0});
      EXPECT_EQ(device_of_address(reinterpret_cast<char*>(live.back().get()) + nbytes), 0);
    }
  }
  std::vector<std::pair<uintptr_t, uintptr_t>> ranges;
  for (const auto& pointer : live) {
    const auto& state = *static_cast<StorageState*>(pointer.get_context());
    ranges.emplace_back(state.begin, state.end);
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    EXPECT(ranges[i - 1].second <= ranges[i].first);
  }
}

TEST(threads_get_different_addresses) {
  constexpr size_t kThreads = 4;
  constexpr size_t kEach = 2000;
  std::vector<std::vector<uintptr_t>> taken(kThreads);
  std::vector<std::thread> threads;
  for (auto& mine : taken) {
    threads.emplace_back([&mine] {
      c10::DataPtr kept;
      for (size_t i = 0; i < kEach; ++i) {
        kept = allocate_on(i % 300, 0); // and so frees the one before
        mine.push_back(address_of(kept));
      }
    });
  }
  std::vector<uintptr_t> all;
  for (size_t i = 0; i < kThreads; ++i) {
    threads[i].join();
    all.insert(all.end(), taken[i].begin(), taken[i].end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all.size(), kThreads * kEach);
  EXPECT(std::adjacent_find(all.begin(), all.end()) == all.end());
}

TEST(an_address_belongs_to_its_live_storage) {
  auto pointer = allocate_on(100, 3);
  auto* address = static_cast<char*>(pointer.get());
  EXPECT_EQ(device_of_address(address), 3);
  EXPECT_EQ(device_of_address(address + 99), 3);
  EXPECT_EQ(device_of_address(address - 1), -1);
  pointer.clear();
  EXPECT_EQ(device_of_address(address), -1);
  const int local = 0;
  EXPECT_EQ(device_of_address(&local), -1);
  EXPECT_EQ(device_of_address(nullptr), -1);
}

TEST(host_code_that_follows_an_address_faults) {
  const auto pointer = allocate_on(64, 0);
  auto* address = static_cast<volatile char*>(pointer.get());
  EXPECT_EQ(signal_of_child([] {}), 0);
  EXPECT_EQ(signal_of_child([address] { (void)*address; }), SIGSEGV);
  EXPECT_EQ(signal_of_child([address] { *address = 1; }), SIGSEGV);
}

TEST(a_storage_larger_than_the_address_range_is_an_error) {
  EXPECT_THROWS(allocate_on(size_t{1} << 60, 0), "larger than the address range");
}

TEST(raw_memory_functions_refuse) {
  char bytes[1] = {};
  EXPECT_THROWS(allocator()->copy_data(bytes, bytes, 1), "copy tensors");
  EXPECT(allocator()->raw_deleter() == nullptr);
}

TEST(strides_of_contiguous_sizes) {
  const auto expect = [](std::vector<int64_t> sizes, const std::vector<int64_t>& strides) {
    EXPECT(torus::contiguous_strides(sizes) == strides);
  };
  expect({}, {});
  expect({5}, {1});
  expect({2, 3, 4}, {12, 4, 1});
  expect({2, 0, 3}, {3, 3, 1}); // as PyTorch has them
}

TEST(a_new_tensor_holds_its_value) {
  Py_INCREF(Py_None);
  const auto value = c10::make_intrusive<Value>(Py_None, intern_layout(at::kFloat, {2, 3}), 0);
  const auto tensor = make_tensor(value, at::kFloat, {3, 2}, {1, 3});
  EXPECT(tensor.device() == c10::Device(kDevice, 0));
  EXPECT(tensor.scalar_type() == at::kFloat);
  EXPECT_EQ(tensor.sizes(), at::IntArrayRef({3, 2}));
  EXPECT_EQ(tensor.strides(), at::IntArrayRef({1, 3}));
  EXPECT_EQ(tensor.storage().nbytes(), size_t{24});
  EXPECT(tensor.storage().resizable());
  EXPECT(state_of(tensor).value == value);
  EXPECT_EQ(state_of(tensor).device, 0);
}

TEST(a_storage_is_found_again_by_its_address) {
  Py_INCREF(Py_None);
  const auto tensor =
      make_tensor(c10::make_intrusive<Value>(Py_None, intern_layout(at::kByte, {8}), 0), at::kByte, {8}, {1});
  auto* address = tensor.storage().unsafeGetStorageImpl()->mutable_data();
  const auto wrap = [](void* data) {
    return c10::StorageImpl(c10::StorageImpl::use_byte_size_t(), 8, c10::DataPtr(data, c10::Device(kDevice, 0)),
                            nullptr, false);
  };
  EXPECT_EQ(&state_of(wrap(address)), &state_of(tensor));
  EXPECT_THROWS(state_of(wrap(static_cast<char*>(address) + 1)), "was not made by torus");
  int local = 0;
  EXPECT_THROWS(state_of(wrap(&local)), "was not made by torus");
}
