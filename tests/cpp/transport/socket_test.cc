#include "syrtos/transport/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "syrtos/base/thread.h"

namespace syrtos {
namespace {

constexpr Seconds kLong{30.0};  // only reached if something hangs

bool Contains(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

int Option(int fd, int level, int option) {
  int value = -1;
  socklen_t length = sizeof value;
  getsockopt(fd, level, option, &value, &length);
  return value;
}

void ExpectUsable(const Socket& socket) {
  EXPECT_TRUE(fcntl(socket.fd(), F_GETFL) & O_NONBLOCK);
  EXPECT_TRUE(fcntl(socket.fd(), F_GETFD) & FD_CLOEXEC);
  EXPECT_NE(Option(socket.fd(), IPPROTO_TCP, TCP_NODELAY), 0);
}

void ConnectAndCheck(const std::string& address) {
  Result<Listener> listener = Listener::Create(address, 0);
  if (!listener.ok() && address.find(':') != std::string::npos) GTEST_SKIP() << "no IPv6 here";
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  EXPECT_GT(listener->port(), 0);
  Result<Socket> caller = Connect(address, listener->port(), kLong);
  ASSERT_TRUE(caller.ok()) << caller.status().message();
  Result<Socket> taken = listener->Accept(kLong);
  ASSERT_TRUE(taken.ok()) << taken.status().message();
  ExpectUsable(*caller);
  ExpectUsable(*taken);
  ASSERT_EQ(send(caller->fd(), "x", 1, MSG_NOSIGNAL), 1);
  ASSERT_TRUE(WaitForEvents(taken->fd(), POLLIN, DeadlineAfter(kLong)));
  char byte = 0;
  EXPECT_EQ(recv(taken->fd(), &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'x');
  EXPECT_EQ(PeerText(caller->fd()), EndpointText(address, listener->port()));
}

TEST(SocketTest, ConnectsOverIPv4) { ConnectAndCheck("127.0.0.1"); }

TEST(SocketTest, ConnectsOverIPv6) { ConnectAndCheck("::1"); }

TEST(SocketTest, EmptyAddressListensEverywhere) {
  Result<Listener> listener = Listener::Create("", 0);
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  EXPECT_TRUE(Connect("127.0.0.1", listener->port(), kLong).ok());
  EXPECT_TRUE(Connect("localhost", listener->port(), kLong).ok());
}

TEST(SocketTest, AcceptTimesOutNamingPortAndSeconds) {
  Result<Listener> listener = Listener::Create("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok());
  for (double seconds : {0.0, 0.05}) {
    const Result<Socket> socket = listener->Accept(Seconds(seconds));
    ASSERT_FALSE(socket.ok());
    EXPECT_EQ(socket.status().code(), StatusCode::kTimeout);
    EXPECT_TRUE(Contains(socket.status(), std::to_string(listener->port())));
    EXPECT_TRUE(Contains(socket.status(), SecondsText(Seconds(seconds))));
  }
}

TEST(SocketTest, ListeningOnATakenPortNamesTheAddress) {
  Result<Listener> first = Listener::Create("127.0.0.1", 0);
  ASSERT_TRUE(first.ok());
  const Result<Listener> second = Listener::Create("127.0.0.1", first->port());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Contains(second.status(), "127.0.0.1:" + std::to_string(first->port())));
  EXPECT_TRUE(Contains(second.status(), "in use")) << second.status().message();
}

TEST(SocketTest, ListeningOnAForeignAddressFails) {
  const Result<Listener> listener = Listener::Create("192.0.2.1", 0);  // TEST-NET-1
  ASSERT_FALSE(listener.ok());
  EXPECT_TRUE(Contains(listener.status(), "192.0.2.1")) << listener.status().message();
}

TEST(SocketTest, BadAddressesAndPortsAreInvalidArguments) {
  for (const Status& status :
       {Connect("no such host!", 1, Seconds(0)).status(), Connect("127.0.0.1", 0, kLong).status(),
        Connect("127.0.0.1", 65536, kLong).status(), Connect("127.0.0.1", -1, kLong).status(),
        Listener::Create("127.0.0.1", 65536).status(),
        Listener::Create("no such host!", 0).status()}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
  }
}

int PortOfNobody() {
  Result<Listener> listener = Listener::Create("127.0.0.1", 0);
  return listener.ok() ? listener->port() : 1;
}

TEST(SocketTest, RefusedConnectionTimesOutWithAddressAndReason) {
  const int port = PortOfNobody();
  const Result<Socket> socket = Connect("127.0.0.1", port, Seconds(0.1));
  ASSERT_FALSE(socket.ok());
  EXPECT_EQ(socket.status().code(), StatusCode::kTimeout);
  EXPECT_TRUE(Contains(socket.status(), "127.0.0.1:" + std::to_string(port)));
  EXPECT_TRUE(Contains(socket.status(), "0.1 s"));
  EXPECT_TRUE(Contains(socket.status(), "refused")) << socket.status().message();
}

TEST(SocketTest, ConnectRetriesUntilTheListenerIsThere) {
  const int port = PortOfNobody();
  Status status;
  Thread late("test-listener", [port, &status] {
    usleep(100000);
    Result<Listener> listener = Listener::Create("127.0.0.1", port);
    status = listener.ok() ? listener->Accept(kLong).status() : listener.status();
  });
  const Result<Socket> socket = Connect("127.0.0.1", port, kLong);
  EXPECT_TRUE(socket.ok()) << socket.status().message();
  late.Join();
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(SocketTest, ShutdownWriteEndsTheStreamAndKeepsReading) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  Socket ours(pair[0]);
  const Socket theirs(pair[1]);
  ours.ShutdownWrite();
  char byte = 0;
  EXPECT_EQ(recv(theirs.fd(), &byte, 1, 0), 0);
  EXPECT_EQ(send(theirs.fd(), "x", 1, MSG_NOSIGNAL), 1);
  EXPECT_EQ(recv(ours.fd(), &byte, 1, 0), 1);
}

TEST(SocketTest, MovesLeaveOneOwner) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  Socket a(pair[0]);
  Socket b(pair[1]);
  Socket moved(std::move(a));
  EXPECT_FALSE(a.valid());  // NOLINT: the state after a move is the promise
  EXPECT_EQ(moved.fd(), pair[0]);
  moved = std::move(b);
  EXPECT_EQ(moved.fd(), pair[1]);
  EXPECT_EQ(fcntl(pair[0], F_GETFD), -1);
  moved.Close();
  EXPECT_EQ(fcntl(pair[1], F_GETFD), -1);
  EXPECT_FALSE(moved.valid());
}

TEST(SocketTest, ForkedChildHoldsNoCopyAndClosesNobodyElsesDescriptor) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  Socket ours(pair[0]);
  const Socket theirs(pair[1]);
  const pid_t child = fork();
  if (child == 0) {
    int failures = fcntl(pair[0], F_GETFD) == -1 ? 0 : 1;
    // The number now belongs to a new file, which the inherited object must not close.
    if (dup2(STDERR_FILENO, pair[0]) != pair[0]) failures += 2;
    ours.Close();
    if (fcntl(pair[0], F_GETFD) == -1) failures += 4;
    _exit(failures);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state));
  EXPECT_EQ(WEXITSTATUS(state), 0);
  EXPECT_NE(fcntl(ours.fd(), F_GETFD), -1);
}

TEST(SocketTest, EndpointTextPutsIPv6InBrackets) {
  EXPECT_EQ(EndpointText("10.0.0.2", 4000), "10.0.0.2:4000");
  EXPECT_EQ(EndpointText("::1", 80), "[::1]:80");
  EXPECT_EQ(PeerText(-1), "the peer");
}

}  // namespace
}  // namespace syrtos
