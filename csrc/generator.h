// The counter-based generator of the device: a seed, and an offset that every random op advances by one.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <optional>

namespace torus {

struct RandomState {
  uint64_t seed;
  uint64_t offset;
};

class GeneratorImpl final : public c10::GeneratorImpl {
 public:
  explicit GeneratorImpl(c10::DeviceIndex device);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  static c10::DeviceType device_type();

  // The state for one op, or for `draws` of them; what comes after gets the offsets after these.
  RandomState next(uint64_t draws);

 private:
  GeneratorImpl* clone_impl() const override;

  RandomState state_;
};

const at::Generator& default_generator(c10::DeviceIndex device);
at::Generator make_generator(c10::DeviceIndex device);
// The state for `draws` ops, from the generator given or the device's default. Raises for a generator of another
// device.
RandomState next_random_state(const std::optional<at::Generator>& generator, c10::DeviceIndex device,
                              uint64_t draws = 1);

} // namespace torus
