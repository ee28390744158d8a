// Results: shapes, and the engine's memory shown through the buffer protocol without a copy.
#include <pybind11/stl.h>

#include "binding/binding.h"
#include "binding/completion.h"
#include "syrtos/base/shape.h"

namespace syrtos::binding {
namespace {

struct PyBuffer {
  OwnedBuffer owned;
  uint64_t bytes = 0;
};

const PartResult& ResultOf(const PyCompletion& self, size_t part) {
  if (!self.completion->done()) {
    throw StatusError(Status::InvalidArgument("the result was asked for before it was there"));
  }
  const auto& results = self.completion->results();
  if (part >= results.size()) {
    throw StatusError(Status::InvalidArgument("part " + std::to_string(part) + " of a request of " +
                                              std::to_string(results.size())));
  }
  return results[part];
}

py::tuple ToTuple(const std::vector<int64_t>& values) {
  py::tuple tuple(values.size());
  for (size_t i = 0; i < values.size(); ++i) tuple[i] = values[i];
  return tuple;
}

py::object BufferOf(const PyCompletion& self, size_t part) {
  const PartResult& result = ResultOf(self, part);
  if (result.owned == nullptr) return py::none();
  auto elements = static_cast<uint64_t>(Unwrap(ElementCount(result.shape)));
  return py::cast(PyBuffer{result.owned, elements * self.item_bytes.at(part)});
}

py::buffer_info Export(PyBuffer& self) {
  return {self.owned.get(), 1, py::format_descriptor<uint8_t>::format(),
          static_cast<py::ssize_t>(self.bytes)};
}

}  // namespace

void BindCompletion(py::module_& module) {
  py::class_<PyBuffer>(module, "OwnedBuffer", py::buffer_protocol(), py::is_final())
      .def_buffer(&Export)
      .def_property_readonly(
          "pointer",
          [](const PyBuffer& self) { return reinterpret_cast<uintptr_t>(self.owned.get()); })
      .def_readonly("nbytes", &PyBuffer::bytes);
  py::class_<PyCompletion>(module, "Completion", py::is_final())
      .def("done", [](const PyCompletion& self) { return self.completion->done(); })
      .def("raise_if_failed",
           [](const PyCompletion& self) { RaiseIfFailed(self.completion->status()); })
      .def_property_readonly("value",
                             [](const PyCompletion& self) { return self.completion->value(); })
      .def(
          "shape",
          [](const PyCompletion& self, size_t part) { return ToTuple(ResultOf(self, part).shape); },
          py::arg("part"))
      .def("buffer", &BufferOf, py::arg("part"))
      .def(
          "received_splits",
          [](const PyCompletion& self, size_t part) {
            return ToTuple(ResultOf(self, part).received_splits);
          },
          py::arg("part"));
}

}  // namespace syrtos::binding
