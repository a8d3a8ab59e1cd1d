// Just enough of a test framework: TEST(name) { ... } registers a test, EXPECT* say what must hold.
#pragma once

#include <c10/util/Exception.h>

#include <sstream>
#include <string>
#include <vector>

namespace torus::test {

struct Case {
  const char* name;
  void (*run)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

struct Registrar {
  Registrar(const char* name, void (*run)()) {
    cases().push_back({name, run});
  }
};

// What a test's thread found wrong; a test without failures has passed.
inline std::vector<std::string>& failures() {
  static std::vector<std::string> all;
  return all;
}

inline void fail(const char* file, int line, const std::string& what) {
  failures().push_back(std::string(file) + ":" + std::to_string(line) + ": " + what);
}

template <typename A, typename B>
void expect_equal(const A& actual, const B& expected, const char* text, const char* file, int line) {
  if (!(actual == expected)) {
    std::ostringstream message;
    message << text << ": got " << actual << ", expected " << expected;
    fail(file, line, message.str());
  }
}

// The message of the exception that `run` throws; a failure when it throws none, or another text.
template <typename Run> void expect_throws(Run run, const std::string& text, const char* file, int line) {
  std::string message;
  try {
    run();
    fail(file, line, "nothing was thrown, expected: " + text);
    return;
  } catch (const c10::Error& error) {
    message = error.what_without_backtrace();
  } catch (const std::exception& error) {
    message = error.what();
  }
  if (message.find(text) == std::string::npos) {
    fail(file, line, "thrown: " + message + "; expected: " + text);
  }
}

} // namespace torus::test

#define TEST(name)                                                          \
  static void test_##name();                                                \
  static const torus::test::Registrar register_##name(#name, &test_##name); \
  static void test_##name()

#define EXPECT(condition) \
  if (!(condition)) torus::test::fail(__FILE__, __LINE__, #condition)
#define EXPECT_EQ(actual, expected) torus::test::expect_equal(actual, expected, #actual, __FILE__, __LINE__)
#define EXPECT_THROWS(expression, text) \
  torus::test::expect_throws([&] { (void)(expression); }, text, __FILE__, __LINE__)
