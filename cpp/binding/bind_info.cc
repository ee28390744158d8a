// The log, the dtype table and what was built in.
#include <pybind11/stl.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "binding/binding.h"
#include "syrtos/base/config.h"
#include "syrtos/base/dtype.h"
#include "syrtos/base/log.h"
#include "syrtos/build_config.h"
#include "syrtos/c_api.h"
#include "syrtos/collectives/backend_registry.h"

namespace syrtos::binding {
namespace {

py::dict BuildInfo() {
  std::vector<std::string> backends;
  for (const BackendFactory& factory : BuiltinBackends()) backends.push_back(factory.name);
  py::dict info;
  info["version"] = SYRTOS_VERSION;
#if defined(__clang__)
  info["compiler"] = std::string("clang ") + __clang_version__;
#else
  info["compiler"] = std::string("g++ ") + __VERSION__;
#endif
  info["pybind11"] = std::to_string(PYBIND11_VERSION_MAJOR) + "." +
                     std::to_string(PYBIND11_VERSION_MINOR) + "." +
                     PYBIND11_TOSTRING(PYBIND11_VERSION_PATCH);
  info["c_api"] = SYRTOS_C_API_VERSION;
  info["backends"] = backends;
  info["gloo"] = SYRTOS_HAVE_GLOO != 0;
  info["sanitizer"] = SYRTOS_HAVE_SANITIZER != 0;
  return info;
}

std::vector<std::tuple<std::string, bool, std::string>> BackendsAvailable(const Config& config) {
  std::vector<std::tuple<std::string, bool, std::string>> rows;
  for (const BackendFactory& factory : BuiltinBackends()) {
    Status status = factory.available == nullptr ? Status::Ok() : factory.available(config);
    rows.emplace_back(factory.name, status.ok(), status.message());
  }
  return rows;
}

std::vector<std::string> DTypeNames() {
  std::vector<std::string> names;
  for (uint8_t number = 0; IsValidDType(number); ++number) {
    names.emplace_back(InfoOf(static_cast<DType>(number)).name);
  }
  return names;
}

}  // namespace

void BindInfo(py::module_& module) {
  module.def(
      "configure_log",
      [](int level, int rank) {
        constexpr int kQuietest = static_cast<int>(LogLevel::kOff);
        ConfigureLog(static_cast<LogLevel>(std::clamp(level, 0, kQuietest)), rank);
      },
      py::arg("level"), py::arg("rank"));
  module.def("backends_available", &BackendsAvailable, py::arg("config"));
  module.def("build_info", &BuildInfo);
  module.def("dtype_names", &DTypeNames);
}

}  // namespace syrtos::binding
