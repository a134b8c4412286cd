#include "tenon/backend/list_form.h"

#include <algorithm>
#include <array>

#include "tenon/backend/forms.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon {
namespace {

ListVector& vector_named(ListForm& list, const std::string& name, DType dtype, const std::string& where) {
  for (ListVector& v : list.vectors) {
    if (v.name != name) continue;
    TENON_CHECK(Internal, v.dtype == dtype, where)
        << "'" << name << "' is read as " << name_of(v.dtype) << " and written as " << name_of(dtype);
    return v;
  }
  list.vectors.push_back({name, dtype});
  return list.vectors.back();
}

void check_view(const Expr& e, const std::string& where) {
  TENON_CHECK(Internal, literal_of(e) || (e.is<nodes::Broadcast>() && e->in[0].shape().numel() == 1), where)
      << e->name() << " is not supported in a launch over lists: only numbers can be broadcast";
}

void add_leaf(ListForm& list, const Expr& leaf, const std::string& where) {
  if (leaf.is<nodes::Constant>()) return;
  if (leaf.is<nodes::ScalarInput>()) {
    TENON_CHECK(Internal, leaf.dtype() == DType::F32, where) << "'" << leaf->attrs.text << "' is not an f32 number";
    list.scalars.push_back(leaf->attrs.text);
    return;
  }
  TENON_CHECK(Internal, leaf.is<nodes::Input>() && leaf.shape() == Shape{kListLength}, where)
      << "a launch over lists reads vectors and numbers, not " << leaf->name() << " of shape " << leaf.shape().str();
  vector_named(list, leaf->attrs.text, leaf.dtype(), where).read = true;
}

}  // namespace

int64_t ListForm::bytes_per_element() const {
  int64_t bytes = 0;
  for (const ListVector& v : vectors) bytes += size_of(v.dtype) * ((v.read ? 1 : 0) + (v.written ? 1 : 0));
  return bytes;
}

std::vector<std::string> ListForm::vector_names() const {
  std::vector<std::string> names;
  for (const ListVector& v : vectors) names.push_back(v.name);
  return names;
}

ListForm make_list_form(const Launch& launch) {
  TENON_CHECK(Internal, launch.skeleton == "map", launch.name)
      << "a launch over lists must be a map, got " << launch.skeleton;
  TENON_CHECK(Internal, launch.form != nullptr, launch.name) << "has no form";
  ListForm list;
  list.form = own_copy(*launch.form);
  TENON_CHECK(Internal, list.form.lets.empty(), launch.name) << "lets are not supported in a launch over lists";
  std::vector<Expr> values;
  for (const FormOutput& o : list.form.outputs) {
    TENON_CHECK(Internal, o.value.shape() == Shape{kListLength}, launch.name)
        << "'" << o.buffer << "' has shape " << o.value.shape().str() << ", not that of a list's vectors";
    values.push_back(o.value);
  }
  for (const Expr& e : topological(values)) {
    if (e->family() == Family::View) check_view(e, launch.name);
    if (e->family() == Family::Leaf) add_leaf(list, e, launch.name);
  }
  for (const FormOutput& o : list.form.outputs) {
    list.finds = list.finds || o.buffer == kFound;
    if (o.buffer != kFound) vector_named(list, o.buffer, o.dtype, launch.name).written = true;
  }
  TENON_CHECK(Internal, list.vectors.size() <= kMaxListVectors, launch.name)
      << "it has " << list.vectors.size() << " vectors; a list's items have at most " << kMaxListVectors;
  TENON_CHECK(Internal, !list.finds || list.form.outputs.size() == 1, launch.name)
      << "a launch that searches has one output";
  return list;
}

}  // namespace tenon
