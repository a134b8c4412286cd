// A launch over lists: the map skeleton where every operand is a vector of one length n, or a number of the run.
// Element i of a result depends on elements i alone, so n may be anything, and a vector may be read and written.
#pragma once
#include "tenon/kernels/form.h"

namespace tenon {

/// The length that stands for any: the shape of every vector of such a launch is [kListLength].
inline constexpr int64_t kListLength = int64_t{1} << 30;
/// Vectors of such a launch at most.
inline constexpr size_t kMostListVectors = 6;
/// An output of this name is not stored: a run looks for an element that is not 0. It is the launch's only one.
inline constexpr char kFound[] = "found";

struct ListVector {
  std::string name;
  DType dtype = DType::F32;
  bool read = false, written = false;
};

/// A launch in form, with what a run supplies.
struct ListForm {
  Form form;
  std::vector<ListVector> vectors;   ///< those that are read, in topological order, then those only written
  std::vector<std::string> scalars;  ///< in topological order
  bool finds = false;                ///< the output is kFound

  /// Bytes that an element of a list moves.
  int64_t bytes_per_element() const;
  std::vector<std::string> vector_names() const;
};

/// Of a launch that has its form, a copy of which it takes; throws Error(Internal) for one that is more than a map over
/// vectors.
ListForm make_list_form(const Launch& launch);

}  // namespace tenon
