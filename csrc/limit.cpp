#include "limit.h"

#include "device.h"
#include "origins.h"
#include "place.h"
#include "python_values.h"

namespace torus {

void limit_memory(c10::DeviceIndex device, int64_t nbytes) {
  set_memory_limit(device, nbytes);
  bool any = false;
  for (c10::DeviceIndex i = 0; i < device_count(); ++i) {
    any = any || memory_limit(i) > 0;
  }
  keep_origins(any);
}

void admit(c10::DeviceIndex device, int64_t nbytes, const char* what) {
  if (!make_room(device, nbytes)) {
    auto index = py_int(device);
    auto bytes = py_int(nbytes);
    auto text = py_text(what);
    call_seam("refuse_memory", {index.get(), bytes.get(), text.get()});
  }
}

void admit(c10::DeviceIndex device, Entry& entry, int64_t more) {
  if (!keeping_origins()) {
    return;
  }
  if (entry.extra_bytes < 0) {
    auto bytes = call_seam("extra_bytes", {entry.recipe.get()});
    entry.extra_bytes = PyLong_AsLongLong(bytes.get());
  }
  admit(device, entry.extra_bytes + more, entry.op->name.c_str());
}

PyObject* describe_live(c10::DeviceIndex device) {
  PyListBuilder list;
  for (const auto& [layout, origin] : live_values(device)) {
    Place place;
    Py_XINCREF(origin.code);
    place.code = PyRef(origin.code);
    place.line = origin.line;
    list.add(py_tuple(py_dtype(layout->dtype), py_ints(layout->shape), py_int(layout->nbytes()), py_text(origin.what),
                      py_text(describe(place))));
  }
  return list.finish().release();
}

} // namespace torus
