#include "syrtos/transport/store_protocol.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace syrtos {
namespace {

std::vector<StoreRequest> OneOfEach() {
  return {{StoreOp::kSet, "key", std::string("va\0lue", 6), Seconds(0), 0},
          {StoreOp::kGet, "", "", Seconds(2.5), 0},
          {StoreOp::kAdd, std::string(300, 'k'), "", Seconds(0), -7},
          {StoreOp::kRemove, "key", "", Seconds(0), 0}};
}

TEST(StoreProtocolTest, RequestsSurviveTheWire) {
  for (const StoreRequest& sent : OneOfEach()) {
    const Result<StoreRequest> received = DecodeStoreRequest(EncodeStoreRequest(sent));
    ASSERT_TRUE(received.ok()) << received.status().message();
    EXPECT_EQ(received.value().op, sent.op);
    EXPECT_EQ(received.value().key, sent.key);
    EXPECT_EQ(received.value().value, sent.value);
    EXPECT_EQ(received.value().timeout, sent.timeout);
    EXPECT_EQ(received.value().delta, sent.delta);
  }
}

TEST(StoreProtocolTest, EveryTruncationOfARequestIsMalformed) {
  for (const StoreRequest& request : OneOfEach()) {
    const std::string bytes = EncodeStoreRequest(request);
    for (size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_EQ(DecodeStoreRequest(bytes.substr(0, length)).status().code(), StatusCode::kInternal);
    }
    EXPECT_FALSE(DecodeStoreRequest(bytes + "x").ok());
  }
}

TEST(StoreProtocolTest, UnknownOperationIsNamed) {
  const std::string bytes("\x09\x00", 2);
  EXPECT_EQ(DecodeStoreRequest(bytes).status().message(), "unknown store operation 9");
}

TEST(StoreProtocolTest, AnswersSurviveTheWire) {
  EXPECT_EQ(DecodeStoreAnswer(EncodeStoreAnswer(std::string("value"))).value(), "value");
  EXPECT_EQ(DecodeStoreAnswer(EncodeStoreAnswer(std::string())).value(), "");
  const Status status = DecodeStoreAnswer(EncodeStoreAnswer(Status::Timeout("late"))).status();
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_EQ(status.message(), "late");
}

TEST(StoreProtocolTest, MalformedAnswersAreRefused) {
  for (const std::string& bytes :
       {std::string(), std::string("\x00", 1), std::string("\x63\x00", 2),
        std::string("\x00\x05"
                    "ab",
                    4),
        std::string("\x00\x00x", 3)}) {
    EXPECT_EQ(DecodeStoreAnswer(bytes).status().code(), StatusCode::kInternal);
  }
}

}  // namespace
}  // namespace syrtos
