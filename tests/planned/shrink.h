// Makes a program that fails smaller.
#pragma once
#include <functional>

#include "tests/planned/random_program.h"

namespace tenon::planned {

/// Whether a program still fails.
using Fails = std::function<bool(const Program&)>;

/// A program that fails too, with fewer results and nodes: greedily, until nothing more can go or `tries` are spent.
Program shrink(Program program, const Fails& fails, int tries = 2000);

}  // namespace tenon::planned
