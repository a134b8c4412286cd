// Includes nanobind without warnings from its headers.
#pragma once
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#pragma GCC diagnostic pop

namespace tenon::python {
namespace nb = nanobind;

// One function per part of the module.
void bind_arrays(nb::module_& m);
void bind_devices(nb::module_& m);
void bind_encoder(nb::module_& m);
void bind_gil(nb::module_& m);
void bind_lion(nb::module_& m);
void bind_expressions(nb::module_& m);
void bind_programs(nb::module_& m);
void bind_pipeline(nb::module_& m);
void bind_text(nb::module_& m);
void bind_train(nb::module_& m);
void bind_trainer(nb::module_& m);

}  // namespace tenon::python
