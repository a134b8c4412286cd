// Base classes of node structs where only their bodies are compiled, in kernels (TENON_DEVICE). Replaces node_type.h.
#pragma once
#include "tenon/core/hd.h"

#ifdef __CUDACC__
namespace std {
template <class T, decltype(sizeof(0)) N>
struct array;
template <class T>
class vector;
}  // namespace std
#else
#include <array>
#include <vector>
#endif

namespace tenon {

class Expr;

template <int N, int P = 0>
struct Pointwise {};
struct Reduce {
  HD static auto finish(auto acc, auto) { return acc; }
};

}  // namespace tenon

#define NODE(...)
