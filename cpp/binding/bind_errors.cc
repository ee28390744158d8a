// The one place where a Status becomes a Python exception (python/syrtos/errors.py).
#include <exception>

#include "binding/binding.h"

namespace syrtos::binding {
namespace {

void Translate(std::exception_ptr thrown) {
  try {
    std::rethrow_exception(std::move(thrown));
  } catch (const StatusError& error) {
    const Status& status = error.status();
    // A text with broken UTF-8 must not hide the error that it describes.
    auto text = py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(
        status.message().data(), static_cast<Py_ssize_t>(status.message().size()), "replace"));
    py::object exception = py::module_::import("syrtos.errors")
                               .attr("from_status")(static_cast<int>(status.code()), text);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  }
}

}  // namespace

void BindErrors(py::module_&) { py::register_local_exception_translator(&Translate); }

}  // namespace syrtos::binding
