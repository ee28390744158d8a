#include "syrtos/transport/tcp_store.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "syrtos/base/log.h"
#include "syrtos/base/thread.h"
#include "syrtos/transport/bytes.h"
#include "syrtos/transport/channel.h"
#include "syrtos/transport/store_protocol.h"

namespace syrtos {
namespace {

constexpr Seconds kLong{30.0};  // only reached if something hangs

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class TcpStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<TcpStoreServer>> server = TcpStoreServer::Create("127.0.0.1", 0);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(server).value();
  }
  void TearDown() override { ConfigureLog(LogLevel::kWarning, -1); }

  std::unique_ptr<TcpStore> NewClient() {
    return TcpStore::Connect("127.0.0.1", server_->port(), kLong).value();
  }
  Channel NewRawClient() { return Channel(Connect("127.0.0.1", server_->port(), kLong).value()); }

  std::unique_ptr<TcpStoreServer> server_;
};

TEST_F(TcpStoreTest, SetIsSeenByOtherClients) {
  const auto a = NewClient();
  const auto b = NewClient();
  ASSERT_TRUE(a->Set("key", std::string("va\0lue", 6)).ok());
  EXPECT_EQ(b->Get("key", kLong).value(), std::string("va\0lue", 6));
  ASSERT_TRUE(b->Set("key", "").ok());
  EXPECT_EQ(a->Get("key", kLong).value(), "");
}

TEST_F(TcpStoreTest, GetWaitsUntilAnotherClientSets) {
  const auto waiter = NewClient();
  const auto setter = NewClient();
  Result<std::string> value(Status::Internal("not run"));
  Thread thread("test-waiter", [&] { value = waiter->Get("late", kLong); });
  usleep(50000);
  ASSERT_TRUE(setter->Set("other", "no").ok());
  ASSERT_TRUE(setter->Set("late", "yes").ok());
  thread.Join();
  ASSERT_TRUE(value.ok()) << value.status().message();
  EXPECT_EQ(value.value(), "yes");
}

TEST_F(TcpStoreTest, GetTimesOutNamingKeyAndSecondsAndTheClientGoesOn) {
  const auto client = NewClient();
  for (double seconds : {-1.0, 0.0, 0.05}) {
    const Result<std::string> value = client->Get("job/rank1", Seconds(seconds));
    ASSERT_FALSE(value.ok());
    EXPECT_EQ(value.status().code(), StatusCode::kTimeout);
    EXPECT_TRUE(Contains(value.status().message(), "\"job/rank1\"")) << value.status().message();
  }
  EXPECT_TRUE(Contains(client->Get("k", Seconds(0.05)).status().message(), "0.05 s"));
  ASSERT_TRUE(client->Set("job/rank1", "x").ok());
  EXPECT_EQ(client->Get("job/rank1", Seconds(0)).value(), "x");
}

TEST_F(TcpStoreTest, WaitsEndInTheOrderOfTheirDeadlines) {
  const auto brief = NewClient();
  const auto patient = NewClient();
  Result<std::string> value(Status::Internal("not run"));
  Thread thread("test-patient", [&] { value = patient->Get("key", kLong); });
  EXPECT_EQ(brief->Get("key", Seconds(0.05)).status().code(), StatusCode::kTimeout);
  ASSERT_TRUE(brief->Set("key", "v").ok());
  thread.Join();
  EXPECT_EQ(value.value(), "v");
}

TEST_F(TcpStoreTest, EndlessTimeoutIsServed) {
  const auto client = NewClient();
  const auto setter = NewClient();
  Result<std::string> value(Status::Internal("not run"));
  Thread thread("test-waiter", [&] { value = client->Get("key", Seconds(1e300)); });
  ASSERT_TRUE(setter->Set("key", "v").ok());
  thread.Join();
  EXPECT_EQ(value.value(), "v");
}

TEST_F(TcpStoreTest, AddCountsAndRemoveForgets) {
  const auto client = NewClient();
  EXPECT_EQ(client->Add("n", 5).value(), 5);
  EXPECT_EQ(client->Add("n", -7).value(), -2);
  EXPECT_EQ(client->Get("n", kLong).value(), "-2");
  EXPECT_TRUE(client->Remove("n").ok());
  EXPECT_TRUE(client->Remove("n").ok());
  EXPECT_EQ(client->Add("n", 1).value(), 1);
  ASSERT_TRUE(client->Set("text", "abc").ok());
  const Result<int64_t> sum = client->Add("text", 1);
  EXPECT_EQ(sum.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(client->Get("text", kLong).value(), "abc");
}

TEST_F(TcpStoreTest, FiftyClientsMeet) {
  constexpr int kClients = 50;
  std::vector<std::string> seen(kClients);
  {
    std::vector<Thread> threads;
    threads.reserve(kClients);
    for (int rank = 0; rank < kClients; ++rank) {
      threads.emplace_back("test-client", [this, rank, &seen] {
        const auto client = NewClient();
        ASSERT_TRUE(client->Set("rank" + std::to_string(rank), std::to_string(rank * rank)).ok());
        const Result<int64_t> arrived = client->Add("arrived", 1);
        ASSERT_TRUE(arrived.ok());
        if (arrived.value() == kClients) {
          ASSERT_TRUE(client->Set("all", "here").ok());
        }
        ASSERT_TRUE(client->Get("all", kLong).ok());
        const int neighbour = (rank + 1) % kClients;
        seen[rank] = client->Get("rank" + std::to_string(neighbour), kLong).value();
      });
    }
  }
  for (int rank = 0; rank < kClients; ++rank) {
    const int neighbour = (rank + 1) % kClients;
    EXPECT_EQ(seen[rank], std::to_string(neighbour * neighbour));
  }
}

TEST_F(TcpStoreTest, HundredsOfWaitingClientsAreWokenByOneSet) {
  constexpr int kClients = 300;
  std::vector<Channel> clients;
  clients.reserve(kClients);
  StoreRequest get;
  get.op = StoreOp::kGet;
  get.key = "start";
  get.timeout = kLong;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(NewRawClient());
    ASSERT_TRUE(clients.back().SendBlocking(EncodeStoreRequest(get), kLong).ok());
  }
  ASSERT_TRUE(NewClient()->Set("start", "now").ok());
  for (Channel& client : clients) {
    const Result<std::string> answer = client.ReceiveBlocking(kLong);
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    EXPECT_EQ(DecodeStoreAnswer(answer.value()).value(), "now");
  }
}

TEST_F(TcpStoreTest, MegabytesFit) {
  const auto a = NewClient();
  const auto b = NewClient();
  const std::string large((5 << 20) + 3, 'L');
  ASSERT_TRUE(a->Set("large", large).ok());
  EXPECT_EQ(b->Get("large", kLong).value(), large);
}

TEST_F(TcpStoreTest, ValueBeyondTheLimitIsRefusedAndTheClientGoesOn) {
  const auto client = NewClient();
  const Status status = client->Set("key", std::string(kMaxStoreFrameBytes, 'x'));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Contains(status.message(), "\"key\"")) << status.message();
  EXPECT_TRUE(client->Set("key", "small").ok());
}

TEST_F(TcpStoreTest, GarbageIsDroppedLoggedOnceAndHarmsNobody) {
  const auto good = NewClient();
  ASSERT_TRUE(good->Set("key", "value").ok());
  ByteWriter huge;
  huge.U64(uint64_t{1} << 40);
  const std::vector<std::string> garbage = {"GET / HTTP/1.1\r\n\r\n", std::string(100000, '\xff'),
                                            "SYR1" + huge.Take()};
  for (const std::string& bytes : garbage) {
    testing::internal::CaptureStderr();
    Channel bad = NewRawClient();
    static_cast<void>(send(bad.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
    EXPECT_EQ(bad.ReceiveBlocking(kLong).status().code(), StatusCode::kPeerLost);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(Contains(log, "dropped the client 127.0.0.1:")) << log;
    EXPECT_EQ(log.find('\n'), log.size() - 1) << log;
    EXPECT_EQ(good->Get("key", kLong).value(), "value");
  }
}

TEST_F(TcpStoreTest, MalformedRequestsAreDropped) {
  ConfigureLog(LogLevel::kOff, 0);
  const auto good = NewClient();
  for (const std::string& message :
       {std::string(), std::string("\x01"), std::string("\x63\x00", 2)}) {
    Channel bad = NewRawClient();
    ASSERT_TRUE(bad.SendBlocking(message, kLong).ok());
    EXPECT_EQ(bad.ReceiveBlocking(kLong).status().code(), StatusCode::kPeerLost);
  }
  // A second request while the first waits.
  Channel hasty = NewRawClient();
  StoreRequest get;
  get.key = "never";
  get.timeout = kLong;
  ASSERT_TRUE(hasty.Send(EncodeStoreRequest(get)).ok());
  ASSERT_TRUE(hasty.Send(EncodeStoreRequest(get)).ok());
  EXPECT_EQ(hasty.ReceiveBlocking(kLong).status().code(), StatusCode::kPeerLost);
  EXPECT_TRUE(good->Set("never", "x").ok());
}

TEST_F(TcpStoreTest, AClientThatLeavesWhileWaitingIsForgotten) {
  testing::internal::CaptureStderr();
  {
    Channel leaver = NewRawClient();
    StoreRequest get;
    get.key = "key";
    get.timeout = kLong;
    ASSERT_TRUE(leaver.SendBlocking(EncodeStoreRequest(get), kLong).ok());
  }
  const auto client = NewClient();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(client->Set("key", "value").ok());
  EXPECT_EQ(client->Get("key", kLong).value(), "value");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// Asks for megabytes again and again before reading anything: the answers must not pile up in the
// server, and the others must be served meanwhile.
TEST_F(TcpStoreTest, AClientThatDoesNotReadIsServedInTheEnd) {
  const auto good = NewClient();
  const std::string large(2 << 20, 'v');
  ASSERT_TRUE(good->Set("large", large).ok());
  Channel lazy = NewRawClient();
  StoreRequest get;
  get.key = "large";
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(lazy.Send(EncodeStoreRequest(get)).ok());
  ASSERT_TRUE(good->Set("other", "x").ok());
  for (int i = 0; i < 8; ++i) {
    const Result<std::string> answer = lazy.ReceiveBlocking(kLong);
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    EXPECT_EQ(DecodeStoreAnswer(answer.value()).value(), large);
  }
}

TEST_F(TcpStoreTest, ClosingTheServerFailsWaitingAndLaterCalls) {
  const auto waiter = NewClient();
  const auto idle = NewClient();
  Result<std::string> value(Status::Internal("not run"));
  Thread thread("test-waiter", [&] { value = waiter->Get("never", kLong); });
  usleep(50000);
  const std::string endpoint = "127.0.0.1:" + std::to_string(server_->port());
  server_.reset();
  thread.Join();
  EXPECT_EQ(value.status().code(), StatusCode::kPeerLost);
  EXPECT_TRUE(Contains(value.status().message(), endpoint)) << value.status().message();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(idle->Set("key", "value").code(), StatusCode::kPeerLost);
    EXPECT_EQ(waiter->Add("key", 1).status().code(), StatusCode::kPeerLost);
  }
}

TEST_F(TcpStoreTest, ConnectWithoutAServerTimesOutNamingTheAddress) {
  const int port = server_->port();
  server_.reset();
  const auto client = TcpStore::Connect("127.0.0.1", port, Seconds(0.1));
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.status().code(), StatusCode::kTimeout);
  EXPECT_TRUE(Contains(client.status().message(), "127.0.0.1:" + std::to_string(port)));
}

TEST_F(TcpStoreTest, ATakenPortIsReported) {
  const auto second = TcpStoreServer::Create("127.0.0.1", server_->port());
  ASSERT_FALSE(second.ok());
  EXPECT_TRUE(Contains(second.status().message(), std::to_string(server_->port())));
}

TEST_F(TcpStoreTest, ForkedChildIsRefusedAndLeavesTheParentsConnectionAlone) {
  const auto client = NewClient();
  ASSERT_TRUE(client->Set("key", "value").ok());
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const bool refused = client->Set("key", "child").code() == StatusCode::kNotInitialized;
    server_.reset();
    _exit(refused ? 7 : 1);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 7) << state;
  EXPECT_EQ(client->Get("key", kLong).value(), "value");
}

double CpuSeconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

TEST_F(TcpStoreTest, WaitingBurnsNoProcessorTime) {
  const auto client = NewClient();
  const double before = CpuSeconds();
  EXPECT_EQ(client->Get("never", Seconds(1.0)).status().code(), StatusCode::kTimeout);
  EXPECT_LT(CpuSeconds() - before, 0.5);  // either side spinning would use a whole second
}

// The queue of connections stays readable while there is no descriptor for them.
TEST_F(TcpStoreTest, RunningOutOfDescriptorsIsSurvived) {
  ConfigureLog(LogLevel::kOff, 0);
  const auto good = NewClient();
  ASSERT_TRUE(good->Set("key", "value").ok());
  std::vector<Socket> callers;
  callers.reserve(3);
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(server_->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  for (const Socket& caller : callers) {
    EXPECT_EQ(connect(caller.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  const double cpu = CpuSeconds();
  usleep(300000);
  EXPECT_EQ(good->Get("key", kLong).value(), "value");
  EXPECT_LT(CpuSeconds() - cpu, 0.2);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  for (Socket& caller : callers) {
    Channel channel(std::move(caller));
    StoreRequest get;
    get.key = "key";
    ASSERT_TRUE(channel.SendBlocking(EncodeStoreRequest(get), kLong).ok());
    const Result<std::string> answer = channel.ReceiveBlocking(kLong);
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    EXPECT_EQ(DecodeStoreAnswer(answer.value()).value(), "value");
  }
}

}  // namespace
}  // namespace syrtos
