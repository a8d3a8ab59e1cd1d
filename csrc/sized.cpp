// Ops whose result has a size that is a value: the host reads the size, then a program fills a result of the next power
// of two, of which the op's result is the front. So there is one program for each power of two, not for each size.
#include "sized.h"

#include <ATen/ExpandUtils.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/masked_scatter_backward.h>
#include <ATen/ops/nonzero_static.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/unique_dim_consecutive.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <algorithm>

namespace torus {
namespace {

constexpr int64_t kSmallest = 16;

int64_t bucket(int64_t size) {
  int64_t result = kSmallest;
  while (result < size) {
    result *= 2;
  }
  return result;
}

int64_t bucket(int64_t size, int64_t most) {
  return std::min(bucket(size), most);
}

int64_t count(const at::Tensor& mask) {
  return at::count_nonzero(mask).item<int64_t>();
}

// The first rows of a bucket. Where they lie in a row, the storage counts no more than the CPU's would: what lies
// behind is nobody's.
at::Tensor front(const at::Tensor& bucketed, int64_t size) {
  auto result = bucketed.narrow(0, 0, size);
  if (result.is_contiguous()) {
    result.storage().unsafeGetStorageImpl()->set_nbytes(static_cast<size_t>(result.numel()) * result.element_size());
  }
  return result;
}

// The first `size` values under the mask; both are flat.
at::Tensor pick(const at::Tensor& values, const at::Tensor& mask, int64_t size) {
  return front(at::masked_scatter_backward(values, mask, {bucket(size, values.numel())}), size);
}

at::Tensor& give(at::Tensor& out, const at::Tensor& result) {
  TORCH_CHECK(out.scalar_type() == result.scalar_type(), "Expected object of scalar type ", result.scalar_type(),
              " but got scalar type ", out.scalar_type(), " for argument 'out'");
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

at::Tensor positions(const at::Tensor& self) {
  const auto size = count(self);
  return front(at::nonzero_static(self, bucket(size, self.numel())), size);
}

at::Tensor& positions_out(const at::Tensor& self, at::Tensor& out) {
  const auto result = positions(self);
  if (out.sizes() != result.sizes()) { // a new layout: column by column, as the CPU gives it
    at::native::resize_output(out, {result.size(1), result.size(0)});
    out.transpose_(0, 1);
  }
  return give(out, result);
}

at::Tensor select_masked(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  const auto both = at::expand_outplace(mask, self);
  return pick(std::get<1>(both)->reshape(-1), std::get<0>(both)->reshape(-1), count(*std::get<0>(both)));
}

at::Tensor& select_masked_out(const at::Tensor& self, const at::Tensor& mask, at::Tensor& out) {
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "masked_select(): self and result must have the same scalar type");
  return give(out, select_masked(self, mask));
}

using Unique = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// Where flat values differ from the one before them.
at::Tensor starts(const at::Tensor& values) {
  const auto size = values.numel();
  const auto first = at::ones({std::min<int64_t>(size, 1)}, values.options().dtype(at::kBool));
  return size < 2 ? first : at::cat({first, values.narrow(0, 1, size - 1).ne(values.narrow(0, 0, size - 1))});
}

// Runs of equal values: one of each; the number of the run of each value; the lengths.
Unique runs(const at::Tensor& values, bool return_inverse, bool return_counts) {
  const auto first = starts(values);
  const auto size = count(first);
  const auto longs = values.options().dtype(at::kLong);
  auto run = return_inverse || return_counts ? first.cumsum(0).sub(1) : at::empty({0}, longs);
  auto lengths = at::empty({0}, longs);
  if (return_counts) {
    const auto none = at::zeros({bucket(size, values.numel())}, longs);
    lengths = front(none.scatter_add(0, run, at::ones({values.numel()}, longs)), size);
  }
  return {pick(values, first, size), std::move(run), std::move(lengths)};
}

Unique unique2(const at::Tensor& self, bool, bool return_inverse, bool return_counts) {
  auto [values, order] = self.reshape(-1).sort();
  auto [found, run, lengths] = runs(values, return_inverse, return_counts);
  if (return_inverse) {
    run = at::zeros_like(run).scatter(0, order, run).view(self.sizes());
  }
  return {std::move(found), return_inverse ? run : at::empty({0}, run.options()), std::move(lengths)};
}

std::tuple<at::Tensor, at::Tensor> unique(const at::Tensor& self, bool sorted, bool return_inverse) {
  auto [found, inverse, lengths] = unique2(self, sorted, return_inverse, false);
  return {std::move(found), std::move(inverse)};
}

Unique unique_consecutive(const at::Tensor& self, bool return_inverse, bool return_counts, std::optional<int64_t> dim) {
  if (dim.has_value()) {
    return at::unique_dim_consecutive(self, *dim, return_inverse, return_counts);
  }
  auto [found, run, lengths] = runs(self.reshape(-1), return_inverse, return_counts);
  return {std::move(found), return_inverse ? run.view(self.sizes()) : at::empty({0}, run.options()),
          std::move(lengths)};
}

at::Tensor bincount(const at::Tensor& self, const std::optional<at::Tensor>& weights, int64_t minlength) {
  const bool weighted = weights.has_value() && weights->defined();
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  TORCH_CHECK(self.dim() == 1, "bincount only supports 1-d non-negative integral inputs.");
  TORCH_CHECK_NOT_IMPLEMENTED(at::isIntegralType(self.scalar_type(), false), "\"bincount_cpu\" not implemented for '",
                              at::toString(self.scalar_type()), "'");
  TORCH_CHECK(!weighted || (weights->dim() == 1 && weights->numel() == self.numel()),
              "weights should be 1-d and have the same length as input");
  auto size = minlength;
  if (self.numel() > 0) {
    const auto [least, most] = at::aminmax(self.to(at::kLong));
    const auto ends = at::stack({least, most}).cpu();
    TORCH_CHECK(ends[0].item<int64_t>() >= 0, "bincount only supports 1-d non-negative integral inputs.");
    size = std::max(size, ends[1].item<int64_t>() + 1);
  }
  const auto dtype = !weighted || self.numel() == 0         ? at::kLong
                     : weights->scalar_type() == at::kFloat ? at::kFloat
                                                            : at::kDouble;
  const auto options = self.options().dtype(dtype);
  const auto added = weighted ? weights->to(dtype) : at::ones({self.numel()}, options);
  return front(at::zeros({bucket(size)}, options).scatter_add(0, self.to(at::kLong), added), size);
}

bool equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.device() == other.device(), "Cannot compare two tensors on different devices. Got: ", self.device(),
              " and ", other.device());
  return self.is_same_size(other) && self.eq(other).all().item<bool>();
}

at::Tensor repeats_of(const at::Tensor& repeats) {
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK(repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt,
              "repeats has to be Long or Int tensor");
  if (repeats.numel() == 0) {
    return at::empty({0}, repeats.options());
  }
  const auto known = at::stack({repeats.min(), repeats.sum().to(repeats.scalar_type())}).cpu();
  TORCH_CHECK(known[0].item<int64_t>() >= 0, "repeats can not be negative");
  const auto size = known[1].item<int64_t>();
  return front(at::repeat_interleave(repeats, std::optional<int64_t>(bucket(size))), size);
}

// Whether the indices are one mask over the leading dimensions.
bool is_row_mask(const at::Tensor& self, at::ArrayRef<std::optional<at::Tensor>> indices) {
  const auto defined = [](const auto& index) { return index.has_value() && index->defined(); };
  if (std::count_if(indices.begin(), indices.end(), defined) != 1 || !defined(indices.front())) {
    return false;
  }
  const auto& mask = *indices.front();
  return mask.scalar_type() == at::kBool && mask.device() == self.device() && mask.dim() > 0 &&
         mask.dim() <= self.dim() && self.sizes().slice(0, static_cast<size_t>(mask.dim())) == mask.sizes();
}

at::Tensor rows(const at::Tensor& self, const at::Tensor& mask) {
  const auto flat = mask.reshape(-1);
  const auto size = count(flat);
  const auto places = at::nonzero_static(flat, bucket(size, flat.numel()), 0).select(1, 0);
  return front(self.flatten(0, mask.dim() - 1).index_select(0, places), size);
}

bool is_mask(const std::optional<at::Tensor>& index) {
  return index.has_value() && index->defined() &&
         (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
}

// The argument that lists indices, if there are masks in it.
std::optional<size_t> masks_among(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  const auto at = schema.argumentIndexWithName("indices");
  const auto first = stack.size() - schema.arguments().size();
  if (!at.has_value() || !stack[first + static_cast<size_t>(*at)].isOptionalTensorList()) {
    return std::nullopt;
  }
  const auto indices = stack[first + static_cast<size_t>(*at)].toOptionalTensorVector();
  return std::any_of(indices.begin(), indices.end(), is_mask) ? std::optional<size_t>(first + *at) : std::nullopt;
}

} // namespace

bool run_sized(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto first = stack->size() - schema.arguments().size();
  if (schema.name() == "aten::repeat_interleave" && (*stack)[first + 1].isNone()) {
    auto result = repeats_of((*stack)[first].toTensor());
    if (schema.overload_name() == "Tensor_out") {
      auto out = (*stack)[first + 2].toTensor();
      result = give(out, result);
    }
    torch::jit::drop(*stack, schema.arguments().size());
    stack->emplace_back(std::move(result));
    return true;
  }
  const auto masks = masks_among(schema, *stack);
  if (!masks.has_value()) {
    return false;
  }
  const auto& self = (*stack)[first].toTensor();
  const auto listed = (*stack)[*masks].toOptionalTensorVector();
  const bool reads = schema.overload_name() == "Tensor";
  if (reads && is_row_mask(self, listed)) {
    auto result = rows(self, *listed.front());
    torch::jit::drop(*stack, 2);
    stack->emplace_back(std::move(result));
    return true;
  }
  const auto indices = (*stack)[*masks].toOptionalTensorList();
  (*stack)[*masks] =
      at::native::toListOfOptionalTensors(at::native::expandTensors(self, at::IOptTensorListRef(indices)));
  op.callBoxed(stack);
  return true;
}

} // namespace torus

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nonzero", &torus::positions);
  m.impl("nonzero.out", &torus::positions_out);
  m.impl("masked_select", &torus::select_masked);
  m.impl("masked_select.out", &torus::select_masked_out);
  m.impl("_unique", &torus::unique);
  m.impl("_unique2", &torus::unique2);
  m.impl("unique_consecutive", &torus::unique_consecutive);
  m.impl("bincount", &torus::bincount);
  m.impl("equal", &torus::equal);
}
