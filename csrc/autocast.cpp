// Autocast: PyTorch's own policy lists, as its CUDA device has them.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace torus {
namespace {

at::Tensor binary_cross_entropy_banned(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                       int64_t) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: probabilities from a "
      "lower-precision layer overflow the logarithm. Use torch.nn.functional.binary_cross_entropy_with_logits or "
      "torch.nn.BCEWithLogitsLoss, which take the values before the sigmoid.");
}

} // namespace
} // namespace torus

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  using namespace at; // the lists name its types without it
#define TORUS_LOWER_PRECISION_FP(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define TORUS_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define TORUS_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define TORUS_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
#define TORUS_FP32_APPEND_DTYPE(...) KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE(__VA_ARGS__)
  AT_FORALL_LOWER_PRECISION_FP(TORUS_LOWER_PRECISION_FP)
  AT_FORALL_FP32(TORUS_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(TORUS_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(TORUS_FP32_APPEND_DTYPE)
  AT_FORALL_PROMOTE(TORUS_PROMOTE)
#undef TORUS_LOWER_PRECISION_FP
#undef TORUS_FP32
#undef TORUS_FP32_SET_OPT_DTYPE
#undef TORUS_PROMOTE
#undef TORUS_FP32_APPEND_DTYPE
  m.impl("binary_cross_entropy", TORCH_FN(torus::binary_cross_entropy_banned));
}
