#include "syrtos/transport/channel.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "syrtos/base/thread.h"
#include "syrtos/transport/bytes.h"

namespace syrtos {
namespace {

constexpr Seconds kLong{30.0};  // only reached if something hangs

// `length` bytes without a short period, so that a lost or doubled piece shows.
std::string Pattern(size_t length, uint32_t seed) {
  std::string text(length, '\0');
  uint32_t state = seed + 1;
  for (char& c : text) {
    state = state * 1664525u + 1013904223u;
    c = static_cast<char>(state >> 24);
  }
  return text;
}

class ChannelTest : public testing::Test {
 protected:
  void SetUp() override { Open(0); }

  // `buffer`: the size of the sockets' buffers, 0 for the system's choice.
  void Open(int buffer) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    for (int fd : pair) {
      if (buffer == 0) continue;
      setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
      setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    }
    a_ = std::make_unique<Channel>(Socket(pair[0]));
    b_ = std::make_unique<Channel>(Socket(pair[1]));
  }

  // Writes bytes as they are, past a's framing.
  void SendRaw(const std::string& bytes) {
    ASSERT_EQ(send(a_->fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  static std::string Frame(uint64_t length, const std::string& payload) {
    ByteWriter writer;
    writer.U64(length);
    return "SYR1" + writer.Take() + payload;
  }

  static bool Contains(const Status& status, const std::string& text) {
    return status.message().find(text) != std::string::npos;
  }

  std::unique_ptr<Channel> a_;
  std::unique_ptr<Channel> b_;
};

TEST_F(ChannelTest, MessagesArriveWholeAndInOrder) {
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(a_->Send(Pattern(i * 7, i)).ok());
  for (int i = 0; i < 100; ++i) {
    const auto message = b_->Receive();
    ASSERT_TRUE(message.ok()) << message.status().message();
    ASSERT_TRUE(message.value().has_value());
    EXPECT_EQ(*message.value(), Pattern(i * 7, i));
  }
  const auto none = b_->Receive();
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none.value().has_value());
}

TEST_F(ChannelTest, EmptyAndBinaryMessagesSurvive) {
  ASSERT_TRUE(a_->Send("").ok());
  ASSERT_TRUE(a_->Send(std::string("SYR1\0\0", 6)).ok());
  EXPECT_EQ(b_->ReceiveBlocking(kLong).value(), "");
  EXPECT_EQ(b_->ReceiveBlocking(kLong).value(), std::string("SYR1\0\0", 6));
}

TEST_F(ChannelTest, AFrameIsMagicLengthAndBytes) {
  ASSERT_TRUE(a_->Send("abc").ok());
  char bytes[64];
  ASSERT_EQ(recv(b_->fd(), bytes, sizeof bytes, MSG_DONTWAIT), 15);
  EXPECT_EQ(std::string(bytes, 15), Frame(3, "abc"));
}

TEST_F(ChannelTest, PartialWritesWaitInTheOutbox) {
  Open(4096);
  const std::string large = Pattern(300000, 1);
  ASSERT_TRUE(a_->Send(large).ok());
  EXPECT_TRUE(a_->wants_write());
  ASSERT_TRUE(a_->Send("after").ok());
  std::optional<std::string> first;
  int rounds = 0;
  while (!first && ++rounds < 1000000) {
    auto message = b_->Receive();
    ASSERT_TRUE(message.ok()) << message.status().message();
    first = *std::move(message);
    ASSERT_TRUE(a_->Flush().ok());
  }
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(*first, large);
  EXPECT_EQ(b_->ReceiveBlocking(kLong).value(), "after");
  ASSERT_TRUE(a_->Flush().ok());
  EXPECT_FALSE(a_->wants_write());
}

TEST_F(ChannelTest, ManyMessagesThroughASmallBuffer) {
  Open(4096);
  constexpr int kMessages = 3000;
  Thread sender("test-sender", [this] {
    for (int i = 0; i < kMessages; ++i) {
      ASSERT_TRUE(a_->SendBlocking(Pattern(static_cast<size_t>(i) % 2000, i), kLong).ok());
    }
  });
  for (int i = 0; i < kMessages; ++i) {
    const Result<std::string> message = b_->ReceiveBlocking(kLong);
    ASSERT_TRUE(message.ok()) << message.status().message();
    ASSERT_EQ(message.value(), Pattern(static_cast<size_t>(i) % 2000, i));
  }
}

TEST_F(ChannelTest, LargeMessagesCrossBothWays) {
  const std::string large = Pattern((8 << 20) + 13, 5);
  Thread other("test-other", [this, &large] {
    const Result<std::string> message = b_->ReceiveBlocking(kLong);
    ASSERT_TRUE(message.ok()) << message.status().message();
    EXPECT_EQ(message.value(), large);
    EXPECT_TRUE(b_->SendBlocking(message.value(), kLong).ok());
  });
  ASSERT_TRUE(a_->SendBlocking(large, kLong).ok());
  const Result<std::string> echo = a_->ReceiveBlocking(kLong);
  ASSERT_TRUE(echo.ok()) << echo.status().message();
  EXPECT_EQ(echo.value(), large);
}

TEST_F(ChannelTest, AFrameMayArriveByteByByte) {
  const std::string frames = Frame(3, "abc") + Frame(0, "") + Frame(1, "z");
  std::string received;
  for (char c : frames) {
    SendRaw(std::string(1, c));
    auto message = b_->Receive();
    ASSERT_TRUE(message.ok());
    if (message->has_value()) received += "<" + **message + ">";
  }
  EXPECT_EQ(received, "<abc><><z>");
}

TEST_F(ChannelTest, WhatWasSentBeforeClosingIsReceivedFirst) {
  ASSERT_TRUE(a_->Send("last words").ok());
  a_.reset();
  EXPECT_EQ(b_->ReceiveBlocking(kLong).value(), "last words");
  for (int i = 0; i < 2; ++i) {  // and then the same failure again and again
    const auto end = b_->Receive();
    ASSERT_FALSE(end.ok());
    EXPECT_EQ(end.status().code(), StatusCode::kPeerLost);
    EXPECT_TRUE(Contains(end.status(), "closed the connection")) << end.status().message();
  }
  EXPECT_EQ(b_->Send("x").code(), StatusCode::kPeerLost);
  EXPECT_EQ(b_->Flush().code(), StatusCode::kPeerLost);
}

TEST_F(ChannelTest, AFailedSendLeavesThePeersLastWordsReadable) {
  ASSERT_TRUE(a_->Send("why I leave").ok());
  a_.reset();
  const Status sent = b_->Send("hello?");  // no SIGPIPE either
  EXPECT_EQ(sent.code(), StatusCode::kPeerLost);
  EXPECT_TRUE(Contains(sent, "Broken pipe")) << sent.message();
  EXPECT_FALSE(b_->wants_write());
  EXPECT_EQ(b_->ReceiveBlocking(kLong).value(), "why I leave");
  EXPECT_EQ(b_->Receive().status().message(), sent.message());
}

TEST_F(ChannelTest, AStreamThatEndsWithinAMessageSaysSo) {
  SendRaw(Frame(10, "only"));
  a_.reset();
  const Result<std::string> end = b_->ReceiveBlocking(kLong);
  EXPECT_EQ(end.status().code(), StatusCode::kPeerLost);
  EXPECT_TRUE(Contains(end.status(), "closed the connection in the middle of a message"));
}

TEST_F(ChannelTest, GarbageIsRefusedShowingWhatCame) {
  SendRaw("GET / HTTP/1.1\r\n");
  for (int i = 0; i < 2; ++i) {
    const auto message = b_->Receive();
    ASSERT_FALSE(message.ok());
    EXPECT_EQ(message.status().code(), StatusCode::kInternal);
    EXPECT_TRUE(Contains(message.status(), "47 45 54 20")) << message.status().message();
    EXPECT_TRUE(Contains(message.status(), "\"GET / HTTP/1.1..\"")) << message.status().message();
  }
  EXPECT_EQ(b_->Send("x").code(), StatusCode::kInternal);
}

TEST_F(ChannelTest, GarbageShorterThanAMagicIsRefusedAtOnce) {
  SendRaw("SX");
  EXPECT_EQ(b_->Receive().status().code(), StatusCode::kInternal);
}

TEST_F(ChannelTest, MessagesBeforeGarbageStillCount) {
  SendRaw(Frame(2, "ok") + "garbage");
  EXPECT_EQ(b_->ReceiveBlocking(kLong).value(), "ok");
  EXPECT_EQ(b_->Receive().status().code(), StatusCode::kInternal);
}

TEST_F(ChannelTest, AnnouncementsBeyondTheLimitAreRefused) {
  for (uint64_t length : {Channel::kMaxFrameBytes + 1, ~uint64_t{0}}) {
    Open(0);
    SendRaw(Frame(length, ""));
    const auto message = b_->Receive();
    ASSERT_FALSE(message.ok());
    EXPECT_EQ(message.status().code(), StatusCode::kInternal);
    EXPECT_TRUE(Contains(message.status(), std::to_string(length))) << message.status().message();
  }
}

TEST_F(ChannelTest, TheLimitCanBeLowered) {
  b_->set_max_frame_bytes(10);
  ASSERT_TRUE(a_->Send(std::string(10, 'x')).ok());
  EXPECT_EQ(b_->ReceiveBlocking(kLong).value(), std::string(10, 'x'));
  ASSERT_TRUE(a_->Send(std::string(11, 'x')).ok());
  EXPECT_EQ(b_->Receive().status().code(), StatusCode::kInternal);
  a_->set_max_frame_bytes(10);
  EXPECT_EQ(a_->Send(std::string(11, 'x')).code(), StatusCode::kInternal);
}

TEST_F(ChannelTest, BlockingFormsTimeOutAndGoOn) {
  const Result<std::string> late = b_->ReceiveBlocking(Seconds(0.02));
  EXPECT_EQ(late.status().code(), StatusCode::kTimeout);
  EXPECT_TRUE(Contains(late.status(), "0.02 s"));
  ASSERT_TRUE(a_->Send("now").ok());
  EXPECT_EQ(b_->ReceiveBlocking(kLong).value(), "now");

  Open(4096);
  EXPECT_EQ(a_->SendBlocking(std::string(1 << 20, 'x'), Seconds(0.02)).code(),
            StatusCode::kTimeout);
}

TEST_F(ChannelTest, ClosedChannelRefusesEverything) {
  ASSERT_TRUE(a_->Send("never read").ok());
  b_->Close();
  b_->Close();
  EXPECT_EQ(b_->Send("x").code(), StatusCode::kShutdown);
  EXPECT_EQ(b_->Receive().status().code(), StatusCode::kShutdown);
  EXPECT_LT(b_->fd(), 0);
  EXPECT_FALSE(b_->wants_write());
}

TEST_F(ChannelTest, ErrorsNameThePeersAddress) {
  Result<Listener> listener = Listener::Create("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok());
  Channel caller(Connect("127.0.0.1", listener->port(), kLong).value());
  {
    const Channel gone(listener->Accept(kLong).value());
  }
  const Result<std::string> end = caller.ReceiveBlocking(kLong);
  ASSERT_FALSE(end.ok());
  EXPECT_EQ(caller.peer(), "127.0.0.1:" + std::to_string(listener->port()));
  EXPECT_TRUE(Contains(end.status(), caller.peer())) << end.status().message();
}

}  // namespace
}  // namespace syrtos
