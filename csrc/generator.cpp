#include "generator.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/TensorBase.h>

#include <array>
#include <cstring>
#include <mutex>

#include "device.h"
#include "storage.h"

namespace torus {
namespace {

constexpr size_t kStateBytes = 2 * sizeof(uint64_t);

} // namespace

GeneratorImpl::GeneratorImpl(c10::DeviceIndex device)
    : c10::GeneratorImpl(c10::Device(kDevice, device), c10::DispatchKeySet(kDispatchKey)),
      state_{c10::detail::getNonDeterministicRandom(), 0} {}

void GeneratorImpl::set_current_seed(uint64_t seed) {
  state_ = {seed, 0};
}

void GeneratorImpl::set_offset(uint64_t offset) {
  state_.offset = offset;
}

uint64_t GeneratorImpl::get_offset() const {
  return state_.offset;
}

uint64_t GeneratorImpl::current_seed() const {
  return state_.seed;
}

uint64_t GeneratorImpl::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return state_.seed;
}

void GeneratorImpl::set_state(const c10::TensorImpl& state) {
  TORCH_CHECK_TYPE(state.device_type() == c10::DeviceType::CPU && state.dtype() == caffe2::TypeMeta::Make<uint8_t>() &&
                       state.numel() == static_cast<int64_t>(kStateBytes) && state.is_contiguous(),
                   "the state of a tpu generator is a contiguous CPU tensor of ", kStateBytes,
                   " bytes (torch.uint8), got ", state.numel(), " elements of ", state.dtype(), " on ", state.device());
  std::memcpy(&state_, state.data(), kStateBytes);
}

c10::intrusive_ptr<c10::TensorImpl> GeneratorImpl::get_state() const {
  auto tensor = at::detail::empty_cpu({static_cast<int64_t>(kStateBytes)}, at::kByte, std::nullopt, std::nullopt,
                                      std::nullopt, std::nullopt);
  std::memcpy(tensor.mutable_data_ptr(), &state_, kStateBytes);
  return tensor.getIntrusivePtr();
}

c10::DeviceType GeneratorImpl::device_type() {
  return kDevice;
}

RandomState GeneratorImpl::next(uint64_t draws) {
  const auto state = state_;
  state_.offset += draws;
  return state;
}

GeneratorImpl* GeneratorImpl::clone_impl() const {
  auto* copy = new GeneratorImpl(device().index());
  copy->state_ = state_;
  return copy;
}

at::Generator make_generator(c10::DeviceIndex device) {
  return at::make_generator<GeneratorImpl>(device < 0 ? current_device() : device);
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static auto* mutex = new std::mutex();
  static auto* generators = new std::array<at::Generator, kMaxDevices>();
  const auto index = device < 0 ? current_device() : resolve_device(c10::Device(kDevice, device));
  std::lock_guard<std::mutex> lock(*mutex);
  auto& generator = (*generators)[static_cast<size_t>(index)];
  if (!generator.defined()) {
    generator = make_generator(index);
    generator.set_current_seed(c10::default_rng_seed_val);
  }
  return generator;
}

RandomState next_random_state(const std::optional<at::Generator>& generator, c10::DeviceIndex device, uint64_t draws) {
  auto chosen = generator.has_value() && generator->defined() ? *generator : default_generator(device);
  TORCH_CHECK(chosen.device().type() == kDevice, "Expected a 'tpu' device type for generator but found '",
              chosen.device().type(), "'. Make one with torch.Generator(device=\"tpu\").");
  auto* impl = chosen.get<GeneratorImpl>();
  std::lock_guard<std::mutex> lock(impl->mutex_);
  return impl->next(draws);
}

} // namespace torus
