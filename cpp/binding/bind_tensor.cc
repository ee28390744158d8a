// Where an array's elements are. NumPy tells by __array_interface__, which builds a dictionary
// (some microseconds), and by __array_struct__, which is a C struct behind a capsule; this reads
// the latter.
#include "binding/binding.h"

namespace syrtos::binding {
namespace {

// NumPy's array interface, version 3 (numpy.org/doc/stable/reference/arrays.interface.html).
struct ArrayInterface {
  int two;
  int dimensions;
  char type_kind;
  int item_bytes;
  int flags;
  Py_intptr_t* shape;
  Py_intptr_t* strides;
  void* data;
  PyObject* description;
};

uintptr_t ArrayAddress(const py::object& array) {
  static PyObject* const name = PyUnicode_InternFromString("__array_struct__");
  auto capsule = py::reinterpret_steal<py::object>(PyObject_GetAttr(array.ptr(), name));
  if (!capsule) throw py::error_already_set();
  auto* interface = static_cast<ArrayInterface*>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
  if (interface == nullptr) throw py::error_already_set();
  if (interface->two != 2) throw py::value_error("unknown version of the array interface");
  return reinterpret_cast<uintptr_t>(interface->data);
}

}  // namespace

void BindTensor(py::module_& module) {
  module.def("array_address", &ArrayAddress, py::arg("array"));
}

}  // namespace syrtos::binding
