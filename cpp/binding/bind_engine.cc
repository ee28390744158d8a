// The engine: submit, wait, close. Every call that may block leaves the GIL.
#include "syrtos/engine/engine.h"

#include <pybind11/stl.h>

#include <algorithm>

#include "binding/binding.h"
#include "binding/completion.h"
#include "syrtos/c_api/current_engine.h"

namespace syrtos::binding {
namespace {

constexpr size_t kPartFields = 7;  // PartTuple of _core.pyi

void* ToPointer(py::handle number) {
  void* pointer = PyLong_AsVoidPtr(number.ptr());
  if (pointer == nullptr && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return pointer;
}

// Appends one PartTuple to the request.
void AddPart(py::handle item, Request& request, std::vector<uint32_t>& item_bytes) {
  auto fields = py::cast<py::tuple>(item);
  if (fields.size() != kPartFields) {
    throw py::value_error("a part is (name, dtype, item bytes, shape, input, output, splits)");
  }
  auto dtype = fields[1].cast<int>();
  if (dtype < 0 || dtype > 255 || !IsValidDType(static_cast<uint8_t>(dtype))) {
    throw py::value_error("unknown dtype number " + std::to_string(dtype));
  }
  PartMeta meta;
  meta.name = fields[0].cast<std::string>();
  meta.dtype = static_cast<DType>(dtype);
  meta.item_bytes = fields[2].cast<uint32_t>();
  meta.shape = fields[3].cast<Shape>();
  meta.splits = fields[6].cast<std::vector<int64_t>>();
  item_bytes.push_back(meta.item_bytes);
  request.meta.parts.push_back(std::move(meta));
  request.memory.push_back({ToPointer(fields[4]), ToPointer(fields[5])});
}

PyCompletion Submit(Engine& engine, int kind, std::string name, uint32_t group, int op,
                    double prescale, double postscale, int32_t root, const py::sequence& parts,
                    std::vector<int32_t> ranks, bool average_active) {
  if (kind < 0 || kind > 255 || !IsValidCollectiveKind(static_cast<uint8_t>(kind))) {
    throw py::value_error("unknown kind of collective " + std::to_string(kind));
  }
  if (op < 0 || op > 255 || !IsValidReduceOp(static_cast<uint8_t>(op))) {
    throw py::value_error("unknown reduce op " + std::to_string(op));
  }
  PyCompletion result;
  Request request;
  request.meta.kind = static_cast<CollectiveKind>(kind);
  request.meta.key.group = group;
  request.meta.key.name = std::move(name);
  request.meta.op = static_cast<ReduceOp>(op);
  request.meta.prescale = prescale;
  request.meta.postscale = postscale;
  request.meta.root = root;
  request.meta.ranks = std::move(ranks);
  request.meta.average_active = average_active;
  request.meta.parts.reserve(parts.size());
  request.memory.reserve(parts.size());
  for (py::handle part : parts) AddPart(part, request, result.item_bytes);
  result.completion = Unwrap(WithoutGil([&] { return engine.Submit(std::move(request)); }));
  return result;
}

bool Wait(Engine& engine, const PyCompletion& completion, double seconds) {
  constexpr double kLongest = 1e8;  // some three years: far from overflowing nanoseconds
  Seconds timeout{std::clamp(seconds, 0.0, kLongest)};
  // A copy: another thread may drop the Python object meanwhile.
  std::shared_ptr<Completion> waited = completion.completion;
  return WithoutGil([&] {
    return engine.Wait(*waited, std::chrono::duration_cast<std::chrono::nanoseconds>(timeout));
  });
}

std::shared_ptr<Engine> Create(const Config& config, std::shared_ptr<Store> store) {
  Config copy = config;  // another thread may change the original meanwhile
  auto engine = WithoutGil([&] { return Engine::Create(copy, std::move(store)); });
  return ShareAcrossFork(Unwrap(std::move(engine)));
}

void Abort(Engine& engine, int code, std::string message) {
  if (code <= 0 || code > static_cast<int>(StatusCode::kInternal)) {
    throw py::value_error("unknown status code " + std::to_string(code));
  }
  Status cause(static_cast<StatusCode>(code), std::move(message));
  WithoutGil([&] { engine.Abort(cause); });
}

py::dict Counters(const Engine& engine) {
  Engine::Counters counters = WithoutGil([&] { return engine.counters(); });
  py::dict result;
  result["plans"] = counters.plans;
  result["parts"] = counters.parts;
  result["cached_posts"] = counters.cached_posts;
  result["full_posts"] = counters.full_posts;
  return result;
}

}  // namespace

void BindEngine(py::module_& module) {
  py::class_<Engine, std::shared_ptr<Engine>>(module, "Engine", py::is_final())
      .def_static("create", &Create, py::arg("config"), py::arg("store").none(true))
      .def("submit", &Submit, py::arg("kind"), py::arg("name"), py::arg("group"), py::arg("op"),
           py::arg("prescale"), py::arg("postscale"), py::arg("root"), py::arg("parts"),
           py::arg("ranks"), py::arg("average_active"))
      .def("wait", &Wait, py::arg("completion"), py::arg("timeout"))
      .def(
          "group_ranks",
          [](const Engine& self, uint32_t group) {
            return WithoutGil([&] { return self.GroupRanks(group); });
          },
          py::arg("group"))
      .def("groups", [](const Engine& self) { return WithoutGil([&] { return self.Groups(); }); })
      .def("backends", &Engine::Backends)
      .def(
          "start_timeline",
          [](Engine& self, const std::string& path, bool mark_cycles) {
            RaiseIfFailed(WithoutGil([&] { return self.StartTimeline(path, mark_cycles); }));
          },
          py::arg("path"), py::arg("mark_cycles"))
      .def("stop_timeline",
           [](Engine& self) { RaiseIfFailed(WithoutGil([&] { return self.StopTimeline(); })); })
      .def("close", [](Engine& self) { WithoutGil([&] { self.Close(); }); })
      .def("abort", &Abort, py::arg("code"), py::arg("message"))
      .def("raise_if_unhealthy",
           [](const Engine& self) { RaiseIfFailed(WithoutGil([&] { return self.health(); })); })
      .def("counters", &Counters)
      .def_property_readonly("config", [](const Engine& self) { return self.config(); });
  module.def(
      "set_current_engine",
      [](std::shared_ptr<Engine> engine) { SetCurrentEngine(std::move(engine)); },
      py::arg("engine").none(true));
}

}  // namespace syrtos::binding
