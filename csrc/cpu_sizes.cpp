#include "cpu_sizes.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <string>
#include <unordered_map>

namespace torus {
namespace {

// The arguments of a call by name.
class Arguments {
 public:
  Arguments(const OpInfo& info, at::ArrayRef<c10::IValue> args) : info_(info), args_(args) {}

  // None for an argument that the op does not have.
  c10::IValue operator[](const char* name) const {
    for (size_t i = 0; i < args_.size(); ++i) {
      if (info_.args[i].name == name) {
        return args_[i];
      }
    }
    return {};
  }

 private:
  const OpInfo& info_;
  at::ArrayRef<c10::IValue> args_;
};

void resize(c10::IValue& result, at::IntArrayRef sizes) {
  const auto& promised = result.toTensor();
  if (promised.sizes() != sizes) {
    result = at::empty(sizes, promised.options());
  }
}

// Evaluation saves no statistics.
void batch_norm(const Arguments& args, torch::jit::Stack& results) {
  const auto training = args["training"];
  if (training.isNone() || !training.toBool()) {
    resize(results[1], {0});
    resize(results[2], {0});
  }
}

// Sums that the CPU takes from the indices as they are need not know which bag each belongs to.
bool sums_directly(const Arguments& args) {
  const auto weight = args["weight"].toTensor();
  const auto scale = args["per_sample_weights"];
  const auto dtype = weight.scalar_type();
  const bool small = dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16;
  const bool dense = scale.isNone() || !scale.toTensor().defined() || scale.toTensor().stride(0) == 1;
  return args["mode"].toInt() == 0 && args["padding_idx"].toInt() < 0 && small && weight.stride(1) == 1 && dense;
}

// `counts`: whether a sum counts its bags; without gradients it leaves that.
void embedding_bag(const Arguments& args, torch::jit::Stack& results, bool counts) {
  const auto mode = args["mode"].toInt();
  auto bags = args["offsets"].toTensor().size(0);
  if ((counts || mode != 0) && args["include_last_offset"].toBool()) {
    --bags;
  }
  resize(results[1], {sums_directly(args) ? 0 : args["indices"].toTensor().size(0)});
  resize(results[2], {bags});
  if (mode == 2) {
    resize(results[3], {bags, args["weight"].toTensor().size(1)});
  } else {
    resize(results[3], {bags});
  }
}

enum class Kind : uint8_t { kBatchNorm, kBag, kBagForwardOnly };

} // namespace

void take_cpu_sizes(const OpInfo& info, at::ArrayRef<c10::IValue> args, torch::jit::Stack& results) {
  static const std::unordered_map<std::string, Kind> kinds = {
      {"aten::native_batch_norm", Kind::kBatchNorm},
      {"aten::_native_batch_norm_legit_functional", Kind::kBatchNorm},
      {"aten::_native_batch_norm_legit_no_training", Kind::kBatchNorm},
      {"aten::_batch_norm_no_update", Kind::kBatchNorm},
      {"aten::_embedding_bag", Kind::kBag},
      {"aten::_embedding_bag_forward_only", Kind::kBagForwardOnly},
  };
  const auto found = kinds.find(info.functional->operator_name().name);
  if (found == kinds.end()) {
    return;
  }
  const Arguments named(info, args);
  if (found->second == Kind::kBatchNorm) {
    batch_norm(named, results);
  } else {
    embedding_bag(named, results, found->second == Kind::kBag);
  }
}

} // namespace torus
