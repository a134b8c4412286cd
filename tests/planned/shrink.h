// Reduces a failing program.
#pragma once
#include <functional>

#include "tests/planned/random_program.h"

namespace tenon::planned {

/// Whether a program still fails.
using Fails = std::function<bool(const Program&)>;

/// A smaller program that also fails, with fewer results and nodes: greedily, until nothing more can be removed or
/// `tries` are used up.
Program shrink(Program program, const Fails& fails, int tries = 2000);

}  // namespace tenon::planned
