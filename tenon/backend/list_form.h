// A launch over lists: a map whose operands are all vectors of one length n, or numbers passed with the run. Element i
// of a result depends on elements i only, so n is arbitrary, and a vector may be both read and written.
#pragma once
#include "tenon/kernels/form.h"

namespace tenon {

/// The placeholder for any length: every vector of such a launch has the shape [kListLength].
inline constexpr int64_t kListLength = int64_t{1} << 30;
/// Most vectors that such a launch may have.
inline constexpr size_t kMaxListVectors = 6;
/// An output of this name is not stored: the run looks for an element that is not 0. It must be the launch's only
/// output.
inline constexpr char kFound[] = "found";

struct ListVector {
  std::string name;
  DType dtype = DType::F32;
  bool read = false, written = false;
};

/// A launch in its form, with what a run passes.
struct ListForm {
  Form form;
  std::vector<ListVector> vectors;   ///< those read, in topological order, then those only written
  std::vector<std::string> scalars;  ///< in topological order
  bool finds = false;                ///< the output is kFound

  /// Bytes moved per list element.
  int64_t bytes_per_element() const;
  std::vector<std::string> vector_names() const;
};

/// Makes the list form of a launch that has its form, which is copied. Throws Error(Internal) if the launch is more
/// than a map over vectors.
ListForm make_list_form(const Launch& launch);

}  // namespace tenon
