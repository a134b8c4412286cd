// tenon._core: the engine as used by the package's Python files. Errors become the exceptions of tenon._errors.
#include "apps/python/nb.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/text.h"

namespace tenon::python {
namespace {

// Sets the Python exception for an engine error. tenon._errors decides its class.
void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& e) {
    try {
      const nb::object made =
          nb::module_::import_("tenon._errors")
              .attr("make")(static_cast<int>(e.kind()), std::string(e.what()), as_utf8(e.where()), e.hint());
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
    } catch (nb::python_error& failed) {
      failed.restore();
    }
  }
}

}  // namespace
}  // namespace tenon::python

NB_MODULE(_core, m) {
  m.attr("__version__") = TENON_VERSION;
  nanobind::register_exception_translator(&tenon::python::translate);
  tenon::set_up_logging();
  nanobind::set_leak_warnings(false);  // a program that ends by an exception keeps arrays alive in its traceback
  tenon::python::bind_gil(m);
  tenon::python::bind_devices(m);
  tenon::python::bind_arrays(m);
  tenon::python::bind_expressions(m);
  tenon::python::bind_programs(m);
  tenon::python::bind_pipeline(m);
  tenon::python::bind_encoder(m);
  tenon::python::bind_lion(m);
  tenon::python::bind_text(m);
  tenon::python::bind_train(m);
  tenon::python::bind_trainer(m);
}
