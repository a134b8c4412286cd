// The options of opening a model, as Python sets them before it opens one.
#pragma once
#include <string>

#include "apps/python/devices.h"
#include "apps/python/nb.h"
#include "tenon/pipelines/networks.h"

namespace tenon::python {

/// Binds the options of one kind of model with what all kinds have.
template <class Options>
nb::class_<Options> bind_options(nb::module_& m, const char* name) {
  return nb::class_<Options>(m, name)
      .def(nb::init<>())
      .def_rw("device", &Options::device)
      .def_rw("threads", &Options::threads)
      .def_rw("fusion", &Options::fusion)
      .def("set_dtype", [](Options& o, const std::string& dtype) { o.type = NetworkType::parse(dtype); });
}

/// The options with the process's number of threads where none was given.
template <class Options>
Options with_threads(Options options) {
  if (options.threads == 0) options.threads = chosen_threads();
  return options;
}

}  // namespace tenon::python
