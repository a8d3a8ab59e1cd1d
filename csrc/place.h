// Where in the user's program an op was recorded.
#pragma once

#include "trace.h"

namespace torus {

// The innermost frame of this thread that is not library code (PyTorch, torus); an empty place when there is none.
Place current_place();
Place share(const Place& place);
// "file.py:12 in name", or an empty text.
std::string describe(const Place& place);

} // namespace torus
