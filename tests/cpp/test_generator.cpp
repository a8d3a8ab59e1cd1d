#include "generator.h"

#include <ATen/ops/zeros.h>

#include <thread>

#include "check.h"
#include "device.h"
#include "storage.h"

using namespace torus;

TEST(a_seed_starts_at_offset_zero) {
  auto generator = make_generator(0);
  auto* impl = generator.get<GeneratorImpl>();
  impl->next(1);
  generator.set_current_seed(42);
  EXPECT_EQ(generator.current_seed(), uint64_t{42});
  EXPECT_EQ(generator.get_offset(), uint64_t{0});
  EXPECT(generator.device() == c10::Device(kDevice, 0));
}

TEST(each_draw_advances_the_offset_by_one) {
  auto generator = make_generator(0);
  generator.set_current_seed(7);
  auto* impl = generator.get<GeneratorImpl>();
  for (uint64_t i = 0; i < 3; ++i) {
    const auto state = impl->next(1);
    EXPECT_EQ(state.seed, uint64_t{7});
    EXPECT_EQ(state.offset, i);
  }
  generator.set_offset(100);
  EXPECT_EQ(next_random_state(generator, 0).offset, uint64_t{100});
  EXPECT_EQ(generator.get_offset(), uint64_t{101});
}

TEST(a_state_goes_round) {
  auto generator = make_generator(0);
  generator.set_current_seed(0xFEDCBA9876543210ULL);
  generator.set_offset(5);
  const auto state = generator.get_state();
  EXPECT(state.device().is_cpu() && state.scalar_type() == at::kByte);
  EXPECT_EQ(state.numel(), 16);
  auto other = make_generator(0);
  other.set_state(state);
  EXPECT_EQ(other.current_seed(), 0xFEDCBA9876543210ULL);
  EXPECT_EQ(other.get_offset(), uint64_t{5});
  generator.get<GeneratorImpl>()->next(1);
  EXPECT(at::Tensor(state).equal(other.get_state())); // a state is a copy
}

TEST(other_tensors_are_no_states) {
  auto generator = make_generator(0);
  EXPECT_THROWS(generator.set_state(at::zeros({15}, at::kByte)), "16 bytes");
  EXPECT_THROWS(generator.set_state(at::zeros({16}, at::kInt)), "torch.uint8");
  EXPECT_THROWS(generator.set_state(at::zeros({32}, at::kByte).slice(0, 0, 32, 2)), "contiguous");
}

TEST(a_clone_goes_its_own_way) {
  auto generator = make_generator(0);
  generator.set_current_seed(3);
  generator.set_offset(9);
  auto copy = generator.clone();
  EXPECT_EQ(copy.current_seed(), uint64_t{3});
  EXPECT_EQ(copy.get_offset(), uint64_t{9});
  EXPECT(copy.device() == generator.device());
  copy.get<GeneratorImpl>()->next(1);
  EXPECT_EQ(generator.get_offset(), uint64_t{9});
}

TEST(new_seeds_differ) {
  auto generator = make_generator(0);
  const auto first = generator.seed();
  EXPECT_EQ(generator.current_seed(), first);
  EXPECT(generator.seed() != first);
}

TEST(each_device_has_one_default_generator) {
  set_device_count(2);
  EXPECT(default_generator(0) == default_generator(0));
  EXPECT(default_generator(0) != default_generator(1));
  EXPECT(default_generator(-1) == default_generator(current_device()));
  EXPECT_EQ(default_generator(1).current_seed(), c10::default_rng_seed_val);
  EXPECT_THROWS(default_generator(2), "tpu:2 does not exist");
  set_device_count(1);
}

TEST(an_op_without_a_generator_draws_from_the_default) {
  auto generator = default_generator(0);
  const auto offset = generator.get_offset();
  EXPECT_EQ(next_random_state(std::nullopt, 0).offset, offset);
  EXPECT_EQ(next_random_state(at::Generator(), 0).offset, offset + 1);
}

TEST(a_generator_of_the_host_is_an_error) {
  EXPECT_THROWS(next_random_state(at::detail::getDefaultCPUGenerator(), 0), "torch.Generator(device=\"tpu\")");
}

TEST(threads_never_draw_the_same_state) {
  auto generator = make_generator(0);
  generator.set_current_seed(1);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&generator] {
      for (int j = 0; j < 2500; ++j) {
        next_random_state(generator, 0);
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(generator.get_offset(), uint64_t{10000});
}
