// Config with Python's types: durations are seconds as float.
#include "syrtos/base/config.h"

#include <pybind11/stl.h>

#include "binding/binding.h"

namespace syrtos::binding {
namespace {

using ConfigClass = py::class_<Config>;

void DefSeconds(ConfigClass& config, const char* name, Seconds Config::* field) {
  config.def_property(
      name, [field](const Config& self) { return (self.*field).count(); },
      [field](Config& self, double value) { self.*field = Seconds(value); });
}

}  // namespace

void BindConfig(py::module_& module) {
  ConfigClass config(module, "Config", py::is_final());
  config.def(py::init<>())
      .def_readwrite("rank", &Config::rank)
      .def_readwrite("size", &Config::size)
      .def_readwrite("local_rank", &Config::local_rank)
      .def_readwrite("local_size", &Config::local_size)
      .def_readwrite("cross_rank", &Config::cross_rank)
      .def_readwrite("cross_size", &Config::cross_size)
      .def_readwrite("host", &Config::host)
      .def_readwrite("address", &Config::address)
      .def_readwrite("job_id", &Config::job_id)
      .def_readwrite("epoch", &Config::epoch)
      .def_readwrite("fusion_threshold_bytes", &Config::fusion_threshold_bytes)
      .def_readwrite("cache_capacity", &Config::cache_capacity)
      .def_readwrite("backend", &Config::backend)
      .def_readwrite("strict_join", &Config::strict_join)
      .def_readwrite("timeline_path", &Config::timeline_path)
      .def_readwrite("timeline_mark_cycles", &Config::timeline_mark_cycles)
      .def_readwrite("gloo_plugin_path", &Config::gloo_plugin_path);
  DefSeconds(config, "start_timeout", &Config::start_timeout);
  DefSeconds(config, "heartbeat_interval", &Config::heartbeat_interval);
  DefSeconds(config, "peer_timeout", &Config::peer_timeout);
  DefSeconds(config, "stall_warning", &Config::stall_warning);
  DefSeconds(config, "stall_limit", &Config::stall_limit);
}

}  // namespace syrtos::binding
