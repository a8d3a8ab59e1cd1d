#include <algorithm>
#include <set>

#include "check.h"
#include "signature.h"

using torus::hash_key;
using torus::Key;

namespace {

Key key_of(std::initializer_list<uint64_t> words) {
  return Key(words.begin(), words.end());
}

} // namespace

TEST(equal_keys_hash_equal) {
  EXPECT_EQ(hash_key(key_of({1, 2, 3})), hash_key(key_of({1, 2, 3})));
  EXPECT(key_of({1, 2, 3}) == key_of({1, 2, 3}));
}

TEST(order_and_length_of_words_count) {
  std::vector<uint64_t> words{1, 2, 3, 4, 5};
  std::set<uint64_t> hashes;
  size_t permutations = 0;
  do {
    hashes.insert(hash_key(Key(words.begin(), words.end())));
    ++permutations;
  } while (std::next_permutation(words.begin(), words.end()));
  EXPECT_EQ(hashes.size(), permutations);
  EXPECT(hash_key(key_of({0})) != hash_key(key_of({0, 0})));
  EXPECT(hash_key(key_of({})) != hash_key(key_of({0})));
}

TEST(one_bit_changes_the_hash) {
  const auto base = key_of({7, 8, 9});
  std::set<uint64_t> hashes{hash_key(base)};
  for (size_t word = 0; word < base.size(); ++word) {
    for (int bit = 0; bit < 64; ++bit) {
      auto changed = base;
      changed[word] ^= uint64_t{1} << bit;
      hashes.insert(hash_key(changed));
    }
  }
  EXPECT_EQ(hashes.size(), 1 + 3 * size_t{64});
}

TEST(a_key_longer_than_its_inline_room) {
  Key key;
  for (uint64_t i = 0; i < 1000; ++i) {
    key.push_back(i);
  }
  const Key copy = key;
  EXPECT(copy == key);
  EXPECT_EQ(hash_key(copy), hash_key(key));
}
