// The Store over TCP: a server (in the launcher, or in rank 0's process) and a client per rank.
// Byte format: docs/wire_format.md. Waiting Gets are held by the server (long poll), never retried.
#pragma once

#include <memory>
#include <string>

#include "syrtos/transport/store.h"

namespace syrtos {

// Owns a listening socket and one thread that serves all clients. Stops in the destructor.
// Failure: Create reports the address it could not bind; a client that sends garbage is dropped and
// logged, the others go on.
class TcpStoreServer {
 public:
  static Result<std::unique_ptr<TcpStoreServer>> Create(const std::string& address,
                                                        int port /* 0: any */);
  ~TcpStoreServer();
  int port() const;

 private:
  class Impl;
  explicit TcpStoreServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// One connection, made by Connect and retried until `timeout`. Calls are serialised by a lock.
class TcpStore : public Store {
 public:
  static Result<std::unique_ptr<TcpStore>> Connect(const std::string& address, int port,
                                                   Seconds timeout);
  ~TcpStore() override;
  Status Set(const std::string& key, const std::string& value) override;
  Result<std::string> Get(const std::string& key, Seconds timeout) override;
  Result<int64_t> Add(const std::string& key, int64_t delta) override;
  Status Remove(const std::string& key) override;

 private:
  class Impl;
  explicit TcpStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace syrtos
