// Shared by tests that need a GPU: they are skipped if there is none.
#pragma once
#include <gtest/gtest.h>

#include <memory>

#include "tenon/backend/backend.h"
#include "tenon/core/error.h"

namespace tenon {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      backend_ = make_backend("cuda");
    } catch (const Error& e) {
      GTEST_SKIP() << e.what();
    }
  }

  std::shared_ptr<Backend> backend_;
};

}  // namespace tenon
