// Runs every test in one process, or those whose name contains the argument. Holds the GIL, as the callers of the core
// do.
#include <Python.h>

#include <cstdio>
#include <cstring>

#include "check.h"

namespace {

bool passes(const torus::test::Case& test) {
  auto& failures = torus::test::failures();
  failures.clear();
  try {
    test.run();
  } catch (const c10::Error& error) {
    failures.push_back(std::string("threw ") + error.what_without_backtrace());
  } catch (const std::exception& error) {
    failures.push_back(std::string("threw ") + error.what());
  }
  std::printf("%s %s\n", failures.empty() ? "passed" : "FAILED", test.name);
  for (const auto& failure : failures) {
    std::printf("  %s\n", failure.c_str());
  }
  return failures.empty();
}

} // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0); // so that a crash shows after which test it came
  Py_InitializeEx(0);
  int passed = 0;
  int failed = 0;
  for (const auto& test : torus::test::cases()) {
    if (argc < 2 || std::strstr(test.name, argv[1]) != nullptr) {
      ++(passes(test) ? passed : failed);
    }
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}
