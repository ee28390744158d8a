// GlooPointToPoint::Create: device, full mesh, and a handshake over it.
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "syrtos/collectives/gloo/gloo_point_to_point.h"
#include "syrtos/collectives/gloo/gloo_store.h"
#include "syrtos/collectives/gloo/gloo_text.h"

namespace syrtos {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kHelloTag = ~uint64_t{0};  // no collective has it

// Threads that are created in its life inherit a mask without signals, so that Python's handlers
// run on Python's threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

std::chrono::milliseconds Left(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  return std::max(left, std::chrono::milliseconds(1));
}

bool CanBind(const addrinfo& candidate) {
  const int fd =
      socket(candidate.ai_family, candidate.ai_socktype | SOCK_CLOEXEC, candidate.ai_protocol);
  if (fd < 0) return false;
  const bool bound = bind(fd, candidate.ai_addr, candidate.ai_addrlen) == 0;
  close(fd);
  return bound;
}

// Asked here because Gloo takes most failures of getaddrinfo for success and then reads an
// uninitialised pointer, and because it loses memory when it cannot bind.
Status CheckAddress(const std::string& address) {
  const std::string fix = "Give an IP address of this host that the other ranks can reach.";
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    return Status::InvalidArgument("the address \"" + address +
                                   "\" of this rank cannot be resolved (" + gai_strerror(error) +
                                   "). " + fix);
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  for (const addrinfo* candidate = found; candidate != nullptr; candidate = candidate->ai_next) {
    if (CanBind(*candidate)) return Status::Ok();
  }
  return Status::InvalidArgument("no network interface of this host has the address \"" + address +
                                 "\". " + fix);
}

// connectFullMesh takes a Store& in Gloo's of 2022 and a shared_ptr<Store> later.
template <typename Context>
void ConnectFullMesh(Context& context, const std::shared_ptr<GlooStore>& store,
                     std::shared_ptr<gloo::transport::Device>& device) {
  if constexpr (std::is_invocable_v<decltype(&Context::connectFullMesh), Context&,
                                    gloo::rendezvous::Store&,
                                    std::shared_ptr<gloo::transport::Device>&>) {
    context.connectFullMesh(*store, device);
  } else {
    context.connectFullMesh(std::shared_ptr<gloo::rendezvous::Store>(store), device);
  }
}

// What both ends must have in common; a stranger who found our port would not know it.
uint64_t HelloOf(const Config& config, int from, int to) {
  return std::hash<std::string>()(config.job_id + "/" + std::to_string(config.epoch) + "/" +
                                  std::to_string(from) + ">" + std::to_string(to));
}

// Every rank greets every other. Gloo calls a connection established when the kernel does, before
// the peer has accepted it; a rank that closed it then would end the peer's process, since Gloo's
// event thread throws when it accepts a connection that was reset. After the greeting both ends
// stand.
void Greet(const Config& config, gloo::rendezvous::Context& context, Clock::time_point deadline) {
  const auto size = static_cast<size_t>(config.size);
  std::vector<uint64_t> sent(size);
  std::vector<uint64_t> received(size);
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> sends;
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> receives(size);
  for (int peer = 0; peer < config.size; ++peer) {
    if (peer == config.rank) continue;
    const auto i = static_cast<size_t>(peer);
    receives[i] = context.createUnboundBuffer(&received[i], sizeof(uint64_t));
    receives[i]->recv(peer, kHelloTag);
    sent[i] = HelloOf(config, config.rank, peer);
    sends.push_back(context.createUnboundBuffer(&sent[i], sizeof(uint64_t)));
    sends.back()->send(peer, kHelloTag);
  }
  for (int peer = 0; peer < config.size; ++peer) {
    if (peer == config.rank) continue;
    const auto i = static_cast<size_t>(peer);
    receives[i]->waitRecv(Left(deadline));
    if (received[i] != HelloOf(config, peer, config.rank)) {
      throw StoreFailure(Status::PeerLost("whoever answered for rank " + std::to_string(peer) +
                                          " belongs to another job or epoch"));
    }
  }
  for (const auto& send : sends) send->waitSend(Left(deadline));
}

std::shared_ptr<gloo::rendezvous::Context> Connect(const Config& config, Store& store) {
  const Clock::time_point deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(config.start_timeout);
  const SignalsBlocked blocked;
  gloo::transport::tcp::attr attributes(config.address.c_str());
  std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attributes);
  const auto gloo_store = std::make_shared<GlooStore>(
      store, config.job_id + "/" + std::to_string(config.epoch) + "/gloo/", deadline);
  const auto context = std::make_shared<gloo::rendezvous::Context>(config.rank, config.size);
  // Gloo waits five times the time-out for each connection to be made.
  context->setTimeout(std::max(Left(deadline) / 5, std::chrono::milliseconds(1)));
  ConnectFullMesh(*context, gloo_store, device);
  Greet(config, *context, deadline);
  gloo_store->RemoveOwnKeys();
  gloo_store->Detach();
  return context;
}

}  // namespace

Result<std::unique_ptr<PointToPoint>> GlooPointToPoint::Create(const Config& config, Store& store) {
  const std::string who =
      "rank " + std::to_string(config.rank) + " (" + config.host + ") could not start Gloo: ";
  try {
    const Status address = CheckAddress(config.address);
    if (!address.ok()) return address.WithPrefix(who);
    // No make_unique: the constructor is private.
    return std::unique_ptr<PointToPoint>(
        new GlooPointToPoint(config.rank, config.size, Connect(config, store)));
  } catch (const StoreFailure& failure) {
    return failure.status.WithPrefix(who);
  } catch (const std::exception& error) {
    return Status::PeerLost(who + WithoutSourceLine(error.what()) + ". Is " + config.address +
                            " an address of this host that the other ranks can reach?");
  }
}

}  // namespace syrtos
