// Which implementation F.scaled_dot_product_attention takes: the one op with our rule where its meta kernel can
// describe the result.
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>

namespace torus {
namespace {

int64_t choose(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
               const std::optional<at::Tensor>&, double, bool, std::optional<double>, bool) {
  const bool described = query.dim() == 4 && key.dim() == 4 && value.dim() == 4;
  return static_cast<int64_t>(described ? sdp::SDPBackend::overrideable : sdp::SDPBackend::math);
}

} // namespace
} // namespace torus

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torus::choose)
} // namespace at::native
