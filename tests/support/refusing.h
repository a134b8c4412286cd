// Tests of what is refused, with an error's kind and whole text.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tenon/core/error.h"

namespace tenon::test {

class Refusing : public ::testing::Test {
 protected:
  static void refused(const std::string& text, const std::function<void()>& f, ErrorKind kind = ErrorKind::Usage) {
    try {
      f();
      ADD_FAILURE() << "accepted, expected: " << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), kind);
      EXPECT_EQ(std::string(e.what()), text);
    }
  }
};

}  // namespace tenon::test
