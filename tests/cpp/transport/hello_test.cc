#include "syrtos/transport/hello.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "syrtos/base/thread.h"
#include "syrtos/transport/bytes.h"

namespace syrtos {
namespace {

constexpr Seconds kLong{30.0};  // only reached if something hangs

Hello HelloOf(int rank) {
  Hello hello;
  hello.purpose = ChannelPurpose::kHealth;
  hello.epoch = 2;
  hello.rank = rank;
  hello.size = 4;
  hello.version = "1.2.3";
  hello.host = "host" + std::to_string(rank);
  hello.pid = 100 + rank;
  hello.backends = {"local", "gloo"};
  hello.settings = {{"fusion_threshold_bytes", "128"}, {"cache_capacity", "16"}, {"backend", ""}};
  hello.proof = std::string("\0secret", 7);
  return hello;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The refusal must have the same code and words whoever looks.
std::string RefusalOf(const Hello& a, const Hello& b, StatusCode code) {
  const Status here = CheckHello(a, b);
  const Status there = CheckHello(b, a);
  EXPECT_EQ(here.code(), code);
  EXPECT_EQ(there.code(), code);
  EXPECT_EQ(here.message(), there.message());
  return here.message();
}

TEST(HelloTest, DecodingReturnsWhatWasEncoded) {
  const Hello sent = HelloOf(3);
  const Result<Hello> received = DecodeHello(EncodeHello(sent));
  ASSERT_TRUE(received.ok()) << received.status().message();
  const Hello& hello = received.value();
  EXPECT_EQ(hello.purpose, sent.purpose);
  EXPECT_EQ(hello.epoch, sent.epoch);
  EXPECT_EQ(hello.rank, sent.rank);
  EXPECT_EQ(hello.size, sent.size);
  EXPECT_EQ(hello.version, sent.version);
  EXPECT_EQ(hello.host, sent.host);
  EXPECT_EQ(hello.pid, sent.pid);
  EXPECT_EQ(hello.backends, sent.backends);
  EXPECT_EQ(hello.settings, sent.settings);
  EXPECT_EQ(hello.proof, sent.proof);
}

TEST(HelloTest, EveryTruncationIsMalformed) {
  const std::string bytes = EncodeHello(HelloOf(1));
  for (size_t length = 0; length < bytes.size(); ++length) {
    const Result<Hello> hello = DecodeHello(bytes.substr(0, length));
    ASSERT_FALSE(hello.ok()) << length;
    EXPECT_EQ(hello.status().code(), StatusCode::kInternal);
    EXPECT_TRUE(Contains(hello.status().message(), "malformed hello"));
  }
  EXPECT_FALSE(DecodeHello(bytes + "x").ok());
}

TEST(HelloTest, ChangedBytesNeverBreakTheDecoder) {
  const std::string bytes = EncodeHello(HelloOf(1));
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      const Result<Hello> hello = DecodeHello(changed);
      if (hello.ok()) {
        EXPECT_LE(hello.value().settings.size(), bytes.size());
      }
    }
  }
}

TEST(HelloTest, UnknownPurposeIsMalformed) {
  const Hello hello = HelloOf(0);
  std::string bytes = EncodeHello(hello);
  const size_t purpose_at = 1 + 1 + hello.version.size();  // after the format and the version
  ASSERT_EQ(bytes[purpose_at], static_cast<char>(ChannelPurpose::kHealth));
  bytes[purpose_at] = 9;
  EXPECT_EQ(DecodeHello(bytes).status().code(), StatusCode::kInternal);
}

TEST(HelloTest, AnotherFormatNamesItsVersion) {
  ByteWriter writer;
  writer.U8(2);
  writer.String("9.0.0");
  writer.String("fields of the future");
  const Status status = DecodeHello(writer.Take()).status();
  EXPECT_EQ(status.code(), StatusCode::kMismatch);
  EXPECT_TRUE(Contains(status.message(), "Syrtos 9.0.0")) << status.message();
}

TEST(HelloTest, EqualsMayTalk) {
  EXPECT_TRUE(CheckHello(HelloOf(0), HelloOf(1)).ok());
  EXPECT_TRUE(CheckHello(HelloOf(3), HelloOf(0)).ok());
}

TEST(HelloTest, DifferingSettingsAreNamedWithBothValues) {
  Hello other = HelloOf(1);
  other.settings[0].second = "64";
  other.settings[2].second = "gloo";
  const std::string text = RefusalOf(HelloOf(0), other, StatusCode::kMismatch);
  EXPECT_TRUE(Contains(text, "fusion_threshold_bytes is \"128\" on rank 0 but \"64\" on rank 1"))
      << text;
  EXPECT_TRUE(Contains(text, "backend is \"\" on rank 0 but \"gloo\" on rank 1")) << text;
  EXPECT_FALSE(Contains(text, "cache_capacity")) << text;
  EXPECT_TRUE(Contains(text, "host0")) << text;
  EXPECT_TRUE(Contains(text, "host1")) << text;
}

TEST(HelloTest, AMissingSettingIsNamed) {
  Hello other = HelloOf(1);
  other.settings.erase(other.settings.begin());
  other.settings.emplace_back("novelty", "1");
  const std::string text = RefusalOf(HelloOf(0), other, StatusCode::kMismatch);
  EXPECT_TRUE(
      Contains(text, "fusion_threshold_bytes is \"128\" on rank 0 but not given on rank 1"));
  EXPECT_TRUE(Contains(text, "novelty is not given on rank 0 but \"1\" on rank 1")) << text;
}

TEST(HelloTest, AnOlderEpochIsRefusedWhateverElseDiffers) {
  Hello old = HelloOf(1);
  old.epoch = 1;
  old.size = 3;
  old.settings.clear();
  const std::string text = RefusalOf(HelloOf(0), old, StatusCode::kShutdown);
  EXPECT_TRUE(Contains(text, "rank 1 (host host1, pid 101) to engine 1")) << text;
  EXPECT_TRUE(Contains(text, "rank 0 (host host0, pid 100) belongs to engine 2")) << text;
}

TEST(HelloTest, DifferingVersionSizeOrEqualRankIsRefused) {
  Hello other = HelloOf(1);
  other.version = "1.2.4";
  std::string text = RefusalOf(HelloOf(0), other, StatusCode::kMismatch);
  EXPECT_TRUE(Contains(text, "1.2.3") && Contains(text, "1.2.4")) << text;

  other = HelloOf(1);
  other.size = 5;
  text = RefusalOf(HelloOf(0), other, StatusCode::kMismatch);
  EXPECT_TRUE(Contains(text, "one of 4") && Contains(text, "one of 5")) << text;

  other = HelloOf(0);
  other.pid = 999;
  text = RefusalOf(HelloOf(0), other, StatusCode::kMismatch);
  EXPECT_TRUE(Contains(text, "same rank") && Contains(text, "pid 999")) << text;

  for (int rank : {-1, 4}) {
    text = RefusalOf(HelloOf(0), HelloOf(rank), StatusCode::kMismatch);
    EXPECT_TRUE(Contains(text, "no rank of a job of 4")) << text;
  }
}

TEST(HelloTest, SettingsHashSeesEveryChange) {
  const uint64_t hash = HelloOf(0).SettingsHash();
  EXPECT_EQ(hash, HelloOf(1).SettingsHash());
  Hello other = HelloOf(0);
  other.settings[1].second = "17";
  EXPECT_NE(hash, other.SettingsHash());
  Hello shifted;
  shifted.settings = {{"ab", "c"}};
  Hello unshifted;
  unshifted.settings = {{"a", "bc"}};
  EXPECT_NE(shifted.SettingsHash(), unshifted.SettingsHash());
  EXPECT_EQ(Hello().SettingsHash(), 0xcbf29ce484222325u);  // FNV's offset basis
}

class HelloExchangeTest : public testing::Test {
 protected:
  HelloExchangeTest() {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    here_ = std::make_unique<Channel>(Socket(pair[0]));
    there_ = std::make_unique<Channel>(Socket(pair[1]));
  }

  // Exchanges on both sides at once; the other side's result is in other_.
  Result<Hello> Exchange(const Hello& ours, const Hello& theirs) {
    Thread other("test-other", [this, &theirs] {
      other_ = ExchangeHello(*there_, theirs, kLong);
      there_->Close();
    });
    Result<Hello> result = ExchangeHello(*here_, ours, kLong);
    here_->Close();
    return result;
  }

  std::unique_ptr<Channel> here_;
  std::unique_ptr<Channel> there_;
  Result<Hello> other_{Status::Internal("not run")};
};

TEST_F(HelloExchangeTest, BothSidesLearnWhoTheOtherIs) {
  const Result<Hello> result = Exchange(HelloOf(0), HelloOf(2));
  ASSERT_TRUE(result.ok()) << result.status().message();
  ASSERT_TRUE(other_.ok()) << other_.status().message();
  EXPECT_EQ(result.value().rank, 2);
  EXPECT_EQ(other_.value().rank, 0);
  EXPECT_EQ(here_->max_frame_bytes(), Channel::kMaxFrameBytes);
}

TEST_F(HelloExchangeTest, BothSidesRaiseTheSameText) {
  Hello theirs = HelloOf(2);
  theirs.settings[1].second = "99";
  const Result<Hello> result = Exchange(HelloOf(0), theirs);
  ASSERT_FALSE(result.ok());
  ASSERT_FALSE(other_.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kMismatch);
  EXPECT_EQ(other_.status().code(), StatusCode::kMismatch);
  EXPECT_EQ(result.status().message(), other_.status().message());
  EXPECT_TRUE(Contains(result.status().message(), "cache_capacity is \"16\" on rank 0 but \"99\""));
}

TEST_F(HelloExchangeTest, AnOlderEpochIsToldOnBothSides) {
  Hello old = HelloOf(2);
  old.epoch = 1;
  const Result<Hello> result = Exchange(HelloOf(0), old);
  EXPECT_EQ(result.status().code(), StatusCode::kShutdown);
  EXPECT_EQ(other_.status().code(), StatusCode::kShutdown);
}

TEST_F(HelloExchangeTest, TheOthersRefusalIsOurs) {
  ASSERT_TRUE(there_->Send(EncodeHello(HelloOf(1))).ok());
  ByteWriter verdict;
  verdict.U8(static_cast<uint8_t>(StatusCode::kMismatch));
  verdict.String("I do not like your proof");
  ASSERT_TRUE(there_->Send(verdict.Take()).ok());
  const Status status = ExchangeHello(*here_, HelloOf(0), kLong).status();
  EXPECT_EQ(status.code(), StatusCode::kMismatch);
  EXPECT_EQ(status.message(), "I do not like your proof");
}

TEST_F(HelloExchangeTest, SilenceTimesOut) {
  const Status status = ExchangeHello(*here_, HelloOf(0), Seconds(0.05)).status();
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_TRUE(Contains(status.message(), "saying hello: ")) << status.message();
}

TEST_F(HelloExchangeTest, GarbageAndGiantsAreRefusedWithoutWaiting) {
  ASSERT_TRUE(there_->Send("not a hello").ok());
  EXPECT_EQ(ExchangeHello(*here_, HelloOf(0), kLong).status().code(), StatusCode::kInternal);

  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  Channel ours{Socket(pair[0])};
  Channel theirs{Socket(pair[1])};
  ASSERT_TRUE(theirs.Send(std::string(2 << 20, 'x')).ok());
  EXPECT_EQ(ExchangeHello(ours, HelloOf(0), kLong).status().code(), StatusCode::kInternal);
}

TEST_F(HelloExchangeTest, APeerThatLeavesIsLost) {
  there_->Close();
  EXPECT_EQ(ExchangeHello(*here_, HelloOf(0), kLong).status().code(), StatusCode::kPeerLost);
}

TEST_F(HelloExchangeTest, BadVerdictIsAnError) {
  ASSERT_TRUE(there_->Send(EncodeHello(HelloOf(1))).ok());
  ASSERT_TRUE(there_->Send("\xff").ok());
  EXPECT_EQ(ExchangeHello(*here_, HelloOf(0), kLong).status().code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace syrtos
