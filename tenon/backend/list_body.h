// What the list kernels of all backends share: the launch as a list, and the check of what a run passes.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/backend/kernel.h"
#include "tenon/backend/list_form.h"
#include "tenon/core/error.h"

namespace tenon {

class ListBody : public ListKernel {
 public:
  std::span<const std::string> vectors() const final { return names_; }
  std::span<const std::string> scalars() const final { return list_.scalars; }

 protected:
  explicit ListBody(const Launch& launch)
      : name_(launch.name), list_(make_list_form(launch)), names_(list_.vector_names()) {}

  /// Throws Error(Internal) if the arguments do not match the launch. `finds`: called by find().
  void check(std::span<const ListItem> items, std::span<const float> scalars, bool finds) const {
    TENON_CHECK(Internal, finds == list_.finds, name_)
        << "a launch that searches must be run by find(), and no other launch";
    TENON_CHECK(Internal, scalars.size() == list_.scalars.size(), name_)
        << "expected " << list_.scalars.size() << " numbers, got " << scalars.size();
    for (const ListItem& item : items)
      for (size_t v = 0; v < names_.size() && item.count > 0; ++v)
        TENON_CHECK(Internal, item.vectors[v] != nullptr, names_[v]) << "no address";
  }

  std::string name_;
  ListForm list_;
  std::vector<std::string> names_;  // of the vectors
};

}  // namespace tenon
