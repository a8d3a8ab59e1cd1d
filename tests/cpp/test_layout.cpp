#include <thread>

#include "check.h"
#include "value.h"

using torus::intern_layout;

TEST(layouts_are_interned) {
  const std::vector<int64_t> shape{2, 3};
  const auto* layout = intern_layout(at::kFloat, shape);
  EXPECT_EQ(layout, intern_layout(at::kFloat, {2, 3}));
  EXPECT(layout->dtype == at::kFloat);
  EXPECT(layout->shape == shape);
  EXPECT_EQ(layout->numel, 6);
  EXPECT_EQ(layout->nbytes(), 24);
}

TEST(different_layouts_have_different_ids) {
  const std::vector<const torus::Layout*> all{intern_layout(at::kFloat, {}),     intern_layout(at::kFloat, {1}),
                                              intern_layout(at::kFloat, {0}),    intern_layout(at::kFloat, {2, 3}),
                                              intern_layout(at::kFloat, {3, 2}), intern_layout(at::kFloat, {6}),
                                              intern_layout(at::kInt, {2, 3}),   intern_layout(at::kHalf, {2, 3})};
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT(all[i] != all[j]);
      EXPECT(all[i]->id != all[j]->id);
    }
  }
  EXPECT_EQ(all[0]->numel, 1);
  EXPECT_EQ(all[2]->numel, 0);
}

TEST(threads_intern_the_same_layouts) {
  constexpr int kThreads = 4;
  constexpr int64_t kSizes = 500;
  std::vector<std::vector<const torus::Layout*>> found(kThreads);
  std::vector<std::thread> threads;
  for (auto& mine : found) {
    threads.emplace_back([&mine] {
      for (int64_t size = 0; size < kSizes; ++size) {
        mine.push_back(intern_layout(at::kByte, {size, 7}));
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  for (const auto& mine : found) {
    EXPECT(mine == found[0]);
  }
}
