#include "check.h"
#include "program.h"

using torus::Entry;
using torus::Key;
using torus::ProgramTable;

namespace {

std::unique_ptr<Entry> entry_of(uint64_t word) {
  auto entry = std::make_unique<Entry>();
  entry->key = Key{word};
  return entry;
}

} // namespace

TEST(a_table_finds_what_was_inserted) {
  ProgramTable table;
  EXPECT(table.find(Key{1}, 10) == nullptr);
  auto* inserted = table.insert(entry_of(1), 10);
  EXPECT_EQ(table.find(Key{1}, 10), inserted);
  EXPECT(table.find(Key{2}, 11) == nullptr);
  EXPECT_EQ(table.size(), size_t{1});
}

TEST(colliding_hashes_are_kept_apart) {
  ProgramTable table;
  auto* first = table.insert(entry_of(1), 42);
  auto* second = table.insert(entry_of(2), 42);
  auto* third = table.insert(entry_of(3), 42);
  // Its own hash is taken by what collided before.
  auto* fourth = table.insert(entry_of(4), 43);
  EXPECT_EQ(table.size(), size_t{4});
  EXPECT_EQ(table.find(Key{1}, 42), first);
  EXPECT_EQ(table.find(Key{2}, 42), second);
  EXPECT_EQ(table.find(Key{3}, 42), third);
  EXPECT_EQ(table.find(Key{4}, 43), fourth);
  EXPECT(table.find(Key{5}, 42) == nullptr);
}

TEST(the_first_of_two_equal_entries_stays) {
  ProgramTable table;
  table.insert(entry_of(1), 42);
  auto* first = table.insert(entry_of(2), 42);
  EXPECT_EQ(table.insert(entry_of(2), 42), first);
  EXPECT_EQ(table.size(), size_t{2});
}

TEST(the_largest_hash_wraps_round) {
  ProgramTable table;
  auto* first = table.insert(entry_of(1), ~uint64_t{0});
  auto* second = table.insert(entry_of(2), ~uint64_t{0});
  EXPECT_EQ(table.find(Key{1}, ~uint64_t{0}), first);
  EXPECT_EQ(table.find(Key{2}, ~uint64_t{0}), second);
}

TEST(a_cleared_table_keeps_running_entries_alive) {
  ProgramTable table;
  auto* entry = table.insert(entry_of(1), 42);
  table.clear();
  EXPECT_EQ(table.size(), size_t{0});
  EXPECT(table.find(Key{1}, 42) == nullptr);
  EXPECT(entry->key == Key{1});
  EXPECT(table.insert(entry_of(1), 42) != entry);
}

TEST(many_entries_survive_growth) {
  ProgramTable table;
  std::vector<Entry*> entries;
  for (uint64_t i = 0; i < 2000; ++i) {
    entries.push_back(table.insert(entry_of(i), i / 4));
  }
  for (uint64_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(table.find(Key{i}, i / 4), entries[i]);
  }
}
