// What a signature leads to: a compiled program and the plan of its results.
#pragma once

#include <c10/util/flat_hash_map.h>

#include <memory>

#include "runtime_seam.h"
#include "signature.h"

namespace torus {

// One result of a program: a new tensor, or the new value of the storage of one of the tensor arguments.
struct ResultPlan {
  const Layout* layout;
  c10::ScalarType dtype;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int32_t writes = -1; // index among the tensor arguments
  bool none = false;   // an undefined tensor (an output mask said no)
};

// How one return of the op is made from the arguments and the results.
struct ReturnPlan {
  enum Kind : uint8_t { kFresh, kFreshList, kArgument, kNumber } kind;
  int32_t index; // of the argument
  int64_t count; // of a list, or the number itself
};

// An out= tensor (its number among them) that must take other sizes first.
struct Resize {
  int32_t argument;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  bool contiguous;
};

struct Entry {
  enum Kind : uint8_t {
    kProgram,
    kResizeThenRetry, // an out= tensor has other sizes than the result
    kFallback         // no lowering for these arguments: runs on the CPU
  } kind = kProgram;
  Key key;
  uint64_t id = 0;            // of this process, from 1
  const OpInfo* op = nullptr; // for reports
  PyRef recipe;               // what Python knows of it: how to load the program, its text
  PyRef execute;              // null until load_program
  PyRef handlers;
  int64_t extra_bytes = -1;    // that it needs while it runs, beside its arguments; -1: not asked yet
  PyRef checks;                // messages of the index checks, whose reports are the last results
  std::vector<int32_t> inputs; // tensor arguments, in the program's order
  bool takes_pack = false;
  std::vector<int32_t> donated; // of the inputs: their memory goes to a result
  int32_t cost = 1;             // how large its program is: the number of its instructions
  std::vector<ResultPlan> results;
  std::vector<ReturnPlan> returns;
  std::vector<Resize> resizes;
};

// Signature -> entry. Entries live as long as the process. Guarded by the GIL.
class ProgramTable {
 public:
  Entry* find(const Key& key, uint64_t hash);
  Entry* insert(std::unique_ptr<Entry> entry, uint64_t hash);
  void clear();
  size_t size() const {
    return entries_.size();
  }

 private:
  // Colliding hashes get the next free number.
  ska::flat_hash_map<uint64_t, std::unique_ptr<Entry>> entries_;
  // What clear() has taken out may still be running on another thread.
  std::vector<std::unique_ptr<Entry>> retired_;
};

ProgramTable& program_table();

// Makes the entry for a signature that is not in the table: asks PyTorch for the results' metadata, and Python for the
// program; `lazy`: the program may come later, through load_program.
std::unique_ptr<Entry> make_entry(const Signature& signature, const c10::OperatorHandle& op,
                                  at::ArrayRef<c10::IValue> args, bool lazy);
// The same for a compiled graph, whose results Python knows.
std::unique_ptr<Entry> make_graph_entry(const Signature& signature, at::ArrayRef<c10::IValue> args, bool lazy);

} // namespace torus
