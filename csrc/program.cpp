#include "program.h"

namespace torus {

Entry* ProgramTable::find(const Key& key, uint64_t hash) {
  for (;; ++hash) {
    auto found = entries_.find(hash);
    if (found == entries_.end()) {
      return nullptr;
    }
    if (found->second->key == key) {
      return found->second.get();
    }
  }
}

Entry* ProgramTable::insert(std::unique_ptr<Entry> entry, uint64_t hash) {
  // Another thread may have made the same entry while Python compiled.
  for (;; ++hash) {
    auto found = entries_.find(hash);
    if (found == entries_.end()) {
      return entries_.emplace(hash, std::move(entry)).first->second.get();
    }
    if (found->second->key == entry->key) {
      return found->second.get();
    }
  }
}

void ProgramTable::clear() {
  for (auto& row : entries_) {
    retired_.push_back(std::move(row.second));
  }
  entries_.clear();
}

ProgramTable& program_table() {
  static auto* table = new ProgramTable();
  return *table;
}

} // namespace torus
