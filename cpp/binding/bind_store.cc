// The rendezvous store: clients of both kinds, and the TCP server that the launcher starts.
#include "syrtos/transport/store.h"

#include <pybind11/stl.h>

#include "binding/binding.h"
#include "syrtos/transport/memory_store.h"
#include "syrtos/transport/tcp_store.h"

namespace syrtos::binding {
namespace {

// Closing must be possible before Python drops the last reference, so the server sits one level
// down.
struct StoreServer {
  std::shared_ptr<TcpStoreServer> server;
  int port = 0;
};

StoreServer MakeServer(const std::string& address, int port) {
  auto server = WithoutGil([&] { return TcpStoreServer::Create(address, port); });
  StoreServer result{ShareAcrossFork(Unwrap(std::move(server))), 0};
  result.port = result.server->port();
  return result;
}

std::shared_ptr<TcpStore> Connect(const std::string& address, int port, double timeout) {
  auto store = WithoutGil([&] { return TcpStore::Connect(address, port, Seconds(timeout)); });
  return ShareAcrossFork(Unwrap(std::move(store)));
}

}  // namespace

void BindStore(py::module_& module) {
  py::class_<Store, std::shared_ptr<Store>>(module, "Store")
      .def(
          "set",
          [](Store& self, const std::string& key, const py::bytes& value) {
            std::string bytes = value;
            RaiseIfFailed(WithoutGil([&] { return self.Set(key, bytes); }));
          },
          py::arg("key"), py::arg("value"))
      .def(
          "get",
          [](Store& self, const std::string& key, double timeout) {
            return py::bytes(Unwrap(WithoutGil([&] { return self.Get(key, Seconds(timeout)); })));
          },
          py::arg("key"), py::arg("timeout"))
      .def(
          "add",
          [](Store& self, const std::string& key, int64_t delta) {
            return Unwrap(WithoutGil([&] { return self.Add(key, delta); }));
          },
          py::arg("key"), py::arg("delta"))
      .def(
          "remove",
          [](Store& self, const std::string& key) {
            RaiseIfFailed(WithoutGil([&] { return self.Remove(key); }));
          },
          py::arg("key"));
  py::class_<MemoryStore, Store, std::shared_ptr<MemoryStore>>(module, "MemoryStore",
                                                               py::is_final())
      .def(py::init<>());
  py::class_<TcpStore, Store, std::shared_ptr<TcpStore>>(module, "TcpStore", py::is_final())
      .def_static("connect", &Connect, py::arg("address"), py::arg("port"), py::arg("timeout"));
  py::class_<StoreServer>(module, "TcpStoreServer", py::is_final())
      .def(py::init(&MakeServer), py::arg("address"), py::arg("port") = 0)
      .def_readonly("port", &StoreServer::port)
      .def("close", [](StoreServer& self) { self.server.reset(); });
}

}  // namespace syrtos::binding
