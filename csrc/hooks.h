// What PyTorch asks of an accelerator: is it there, how many, its generators, resizing of its storages.
#pragma once

namespace torus {

void register_hooks();
void register_guard();

} // namespace torus
