// A compiled graph: an op of its own, that Python made from many.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include "op.h"

namespace torus {

class Graph {
 public:
  // `name` says what it computes in every process. `kinds` has a letter for each argument: "t" a tensor, "w" a tensor
  // that is written, "s" a number of the program (part of its signature), "r" a number that is known at run time.
  // `draws`: how many of its ops take random numbers.
  Graph(const std::string& name, const std::string& kinds, uint32_t draws);

  // Runs it on `arguments`: tensors of this device, tensors of the CPU (copied to the device, those without dimensions
  // as numbers), numbers, None. Gives the new tensors.
  std::vector<at::Tensor> run(const pybind11::list& arguments) const;
  // Has the program for such arguments made, and in memory.
  void prepare(const pybind11::list& arguments) const;

 private:
  OpInfo info_;
};

} // namespace torus
