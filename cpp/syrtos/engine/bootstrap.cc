#include "syrtos/engine/bootstrap.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "syrtos/base/log.h"
#include "syrtos/build_config.h"
#include "syrtos/transport/bytes.h"
#include "syrtos/transport/hello.h"

namespace syrtos {
namespace {

using Clock = std::chrono::steady_clock;

std::string StoreKey(const Config& config, const std::string& name) {
  return config.job_id + "/" + std::to_string(config.epoch) + "/" + name;
}

Hello OwnHello(const Config& config, ChannelPurpose purpose, std::vector<std::string> backends) {
  Hello hello;
  hello.purpose = purpose;
  hello.epoch = config.epoch;
  hello.rank = config.rank;
  hello.size = config.size;
  hello.version = SYRTOS_VERSION;
  hello.host = config.host;
  hello.pid = getpid();
  hello.backends = std::move(backends);
  hello.settings = AgreedSettings(config);
  return hello;
}

// One outcome, sent from rank 0 to all or from each rank to rank 0: a failure, or a list of names.
std::string EncodeOutcome(const Status& status, const std::vector<std::string>& names) {
  ByteWriter writer;
  writer.U8(static_cast<uint8_t>(status.code()));
  writer.String(status.message());
  writer.Varint(names.size());
  for (const auto& name : names) writer.String(name);
  return writer.Take();
}

Result<std::vector<std::string>> DecodeOutcome(const std::string& bytes) {
  ByteReader reader(bytes);
  auto code = static_cast<StatusCode>(reader.U8());
  std::string text = reader.String();
  std::vector<std::string> names(reader.Count());
  for (auto& name : names) name = reader.String();
  if (!reader.done()) return Status::Internal("malformed start message");
  if (code != StatusCode::kOk) return Status(code, text);
  return names;
}

class Bootstrap {
 public:
  Bootstrap(const Config& config, std::shared_ptr<Store> store,
            const std::vector<BackendFactory>& factories)
      : config_(config), store_(std::move(store)), factories_(factories) {}

  Result<World> Run() {
    deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(config_.start_timeout);
    world_.own_name = RankName(config_.rank, config_.host, getpid());
    SYRTOS_RETURN_IF_ERROR(FindAvailable());
    if (config_.size == 1) {
      world_.hosts = {config_.host};
      SYRTOS_RETURN_IF_ERROR(CreateBackends(available_));
      return std::move(world_);
    }
    SYRTOS_RETURN_IF_ERROR(config_.rank == 0 ? Gather() : CallRoot());
    SYRTOS_ASSIGN_OR_RETURN(auto agreed, AgreeOnBackends());
    SYRTOS_RETURN_IF_ERROR(AgreeOnOutcome(CreateBackends(agreed)));
    return std::move(world_);
  }

 private:
  Seconds Left() const { return std::max<Seconds>(deadline_ - Clock::now(), Seconds(0)); }

  // Config::backend leaves one communicator for groups of several ranks.
  Status FindAvailable() {
    std::string names;
    bool found = config_.backend.empty();
    for (const auto& factory : factories_) {
      if (factory.multi_rank) names += (names.empty() ? "" : ", ") + factory.name;
      found = found || (factory.multi_rank && factory.name == config_.backend);
    }
    if (!found) {
      return Status::InvalidArgument("backend=\"" + config_.backend + "\" is not one of: " + names +
                                     ". Leave it out to let Syrtos choose.");
    }
    for (const auto& factory : factories_) {
      if (factory.multi_rank && config_.size == 1) continue;
      if (factory.multi_rank && !config_.backend.empty() && factory.name != config_.backend)
        continue;
      Status status = factory.available == nullptr ? Status::Ok() : factory.available(config_);
      if (status.ok()) {
        available_.push_back(factory.name);
      } else if (factory.multi_rank) {
        reasons_ += (reasons_.empty() ? "" : "; ") + factory.name + ": " + status.message();
      }
    }
    return Status::Ok();
  }

  // rank 0: accepts two connections of each other rank.
  Status Gather() {
    SYRTOS_ASSIGN_OR_RETURN(Listener listener, Listener::Create(config_.address, 0));
    std::string address = config_.address + "|" + std::to_string(listener.port());
    SYRTOS_RETURN_IF_ERROR(store_->Set(StoreKey(config_, "root"), address));
    size_t peers = static_cast<size_t>(config_.size) - 1;
    world_.control.resize(peers);
    world_.health.resize(peers);
    world_.hosts.assign(peers + 1, config_.host);
    peer_backends_.resize(peers);
    size_t connected = 0;
    while (connected < 2 * peers) {
      auto socket = listener.Accept(Left());
      if (!socket.ok()) return TellAll(Missing(socket.status()));
      SYRTOS_ASSIGN_OR_RETURN(bool placed, Welcome(std::move(socket).value()));
      if (placed) ++connected;
    }
    return Status::Ok();
  }

  // True if the connection was a rank's; a stranger's is closed and does no harm.
  Result<bool> Welcome(Socket socket) {
    auto channel = std::make_unique<Channel>(std::move(socket));
    Hello ours = OwnHello(config_, ChannelPurpose::kControl, available_);
    auto theirs = ExchangeHello(*channel, ours, std::min<Seconds>(Left(), Seconds(5)));
    if (!theirs.ok()) {
      if (theirs.status().code() == StatusCode::kMismatch) return TellAll(theirs.status());
      SYRTOS_LOG(kWarning, "start") << "refused a connection: " << theirs.status().message();
      return false;
    }
    size_t index = static_cast<size_t>(theirs->rank) - 1;
    bool control = theirs->purpose == ChannelPurpose::kControl;
    bool taken = index >= world_.control.size() ||
                 (control ? world_.control[index] : world_.health[index].channel) != nullptr;
    if (taken) {
      SYRTOS_LOG(kWarning, "start") << "refused a second connection as rank " << theirs->rank;
      return false;
    }
    std::string name = RankName(theirs->rank, theirs->host, theirs->pid);
    world_.hosts[index + 1] = theirs->host;
    if (control) {
      peer_backends_[index] = theirs->backends;
      world_.control[index] = std::move(channel);
    } else {
      world_.health[index] = {theirs->rank, name, std::move(channel)};
    }
    return true;
  }

  Status Missing(const Status& why) const {
    std::string ranks;
    for (size_t i = 0; i < world_.control.size(); ++i) {
      if (world_.control[i] != nullptr && world_.health[i].channel != nullptr) continue;
      ranks += (ranks.empty() ? "" : ", ") + std::to_string(i + 1);
    }
    return Status::Timeout("init() waited " +
                           std::to_string(static_cast<int>(config_.start_timeout.count())) +
                           " s for rank(s) " + ranks + " of " + std::to_string(config_.size) +
                           ", which did not connect (" + why.message() +
                           "). Does every rank call init()? Raise start_timeout if they are slow.");
  }

  // Sends a failure to every rank that is connected, and returns it.
  Status TellAll(const Status& failure) {
    for (auto& channel : world_.control) {
      if (channel == nullptr) continue;
      Status ignored = channel->SendBlocking(EncodeOutcome(failure, {}), Seconds(1));
      static_cast<void>(ignored);
    }
    return failure;
  }

  Status CallRoot() {
    auto root = store_->Get(StoreKey(config_, "root"), Left());
    if (!root.ok()) {
      return root.status().WithPrefix(
          "init() could not learn the address of rank 0, which publishes "
          "it in its own init(): ");
    }
    size_t bar = root->rfind('|');
    if (bar == std::string::npos) return Status::Internal("malformed address \"" + *root + "\"");
    std::string address = root->substr(0, bar);
    int port = 0;
    const char* end = root->data() + root->size();
    const auto [stop, error] = std::from_chars(root->data() + bar + 1, end, port);
    if (error != std::errc() || stop != end) {
      return Status::Internal("malformed address \"" + *root + "\"");
    }
    for (ChannelPurpose purpose : {ChannelPurpose::kControl, ChannelPurpose::kHealth}) {
      SYRTOS_ASSIGN_OR_RETURN(Socket socket, Connect(address, port, Left()));
      auto channel = std::make_unique<Channel>(std::move(socket));
      auto theirs = ExchangeHello(*channel, OwnHello(config_, purpose, available_), Left());
      if (!theirs.ok()) return theirs.status();
      if (purpose == ChannelPurpose::kControl) {
        world_.control.push_back(std::move(channel));
      } else {
        world_.health.push_back({0, RankName(0, theirs->host, theirs->pid), std::move(channel)});
      }
    }
    return Status::Ok();
  }

  // The communicators that all ranks have, in rank 0's order.
  Result<std::vector<std::string>> AgreeOnBackends() {
    if (config_.rank != 0) return Hear();
    std::vector<std::string> agreed = available_;
    for (const auto& theirs : peer_backends_) {
      agreed.erase(std::remove_if(agreed.begin(), agreed.end(),
                                  [&](const std::string& name) {
                                    return std::find(theirs.begin(), theirs.end(), name) ==
                                           theirs.end();
                                  }),
                   agreed.end());
    }
    bool multi = std::any_of(factories_.begin(), factories_.end(), [&](const BackendFactory& f) {
      return f.multi_rank && std::find(agreed.begin(), agreed.end(), f.name) != agreed.end();
    });
    if (!multi) return TellAll(NoBackend());
    for (auto& channel : world_.control) {
      SYRTOS_RETURN_IF_ERROR(channel->SendBlocking(EncodeOutcome(Status::Ok(), agreed), Left()));
    }
    return agreed;
  }

  Status NoBackend() const {
    std::string text = "no communicator that works between ranks is available on all of them. ";
    text += reasons_.empty()
                ? "Rank 0 has one, but not every other rank: run `syrtos doctor` there."
                : "On rank 0: " + reasons_;
    return Status::BackendUnavailable(text);
  }

  Result<std::vector<std::string>> Hear() {
    SYRTOS_ASSIGN_OR_RETURN(std::string bytes, world_.control[0]->ReceiveBlocking(Left()));
    return DecodeOutcome(bytes);
  }

  Status CreateBackends(const std::vector<std::string>& names) {
    BackendContext context{&config_, store_};
    for (const auto& factory : factories_) {
      if (std::find(names.begin(), names.end(), factory.name) == names.end()) continue;
      SYRTOS_ASSIGN_OR_RETURN(auto communicator, factory.create(context));
      world_.backends.Add(std::move(communicator));
    }
    return Status::Ok();
  }

  // All ranks leave the start together, or all with the first failure.
  Status AgreeOnOutcome(const Status& own) {
    if (config_.rank != 0) {
      SYRTOS_RETURN_IF_ERROR(world_.control[0]->SendBlocking(EncodeOutcome(own, {}), Left()));
      auto heard = Hear();
      return heard.ok() ? Status::Ok() : heard.status();
    }
    Status first = own;
    for (size_t i = 0; i < world_.control.size(); ++i) {
      auto bytes = world_.control[i]->ReceiveBlocking(Left() + Seconds(5));
      Status outcome = bytes.status();
      if (bytes.ok()) outcome = DecodeOutcome(*bytes).status();
      if (first.ok() && !outcome.ok()) {
        first = outcome.WithPrefix("rank " + std::to_string(i + 1) + " could not start: ");
      }
    }
    if (!first.ok()) return TellAll(first);
    for (auto& channel : world_.control) {
      SYRTOS_RETURN_IF_ERROR(channel->SendBlocking(EncodeOutcome(Status::Ok(), {}), Seconds(5)));
    }
    Status removed = store_->Remove(StoreKey(config_, "root"));
    static_cast<void>(removed);  // tidiness only
    return Status::Ok();
  }

  const Config& config_;
  const std::shared_ptr<Store> store_;
  const std::vector<BackendFactory>& factories_;
  Clock::time_point deadline_;
  std::vector<std::string> available_;
  std::string reasons_;
  std::vector<std::vector<std::string>> peer_backends_;
  World world_;
};

}  // namespace

std::string RankName(int rank, const std::string& host, int64_t pid) {
  return "rank " + std::to_string(rank) + " (" + host + ", pid " + std::to_string(pid) + ")";
}

Result<World> JoinWorld(const Config& config, std::shared_ptr<Store> store,
                        const std::vector<BackendFactory>& factories) {
  if (config.size < 1 || config.rank < 0 || config.rank >= config.size) {
    return Status::InvalidArgument("rank " + std::to_string(config.rank) + " of size " +
                                   std::to_string(config.size) + " makes no sense");
  }
  if (config.size > 1 && store == nullptr) {
    return Status::InvalidArgument("a world of " + std::to_string(config.size) +
                                   " ranks needs a rendezvous store");
  }
  return Bootstrap(config, std::move(store), factories).Run();
}

}  // namespace syrtos
