#include "syrtos/base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "syrtos/base/result.h"

namespace syrtos {
namespace {

TEST(StatusTest, DefaultIsOkWithoutText) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.ToString(), "ok");
}

TEST(StatusTest, EachFactoryGivesItsCodeAndText) {
  EXPECT_EQ(Status::InvalidArgument("m").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Status::Mismatch("m").code(), StatusCode::kMismatch);
  EXPECT_EQ(Status::NotInitialized("m").code(), StatusCode::kNotInitialized);
  EXPECT_EQ(Status::PeerLost("m").code(), StatusCode::kPeerLost);
  EXPECT_EQ(Status::Timeout("m").code(), StatusCode::kTimeout);
  EXPECT_EQ(Status::BackendUnavailable("m").code(), StatusCode::kBackendUnavailable);
  EXPECT_EQ(Status::Shutdown("m").code(), StatusCode::kShutdown);
  EXPECT_EQ(Status::Internal("m").code(), StatusCode::kInternal);
  EXPECT_EQ(Status::Internal("m").message(), "m");
}

TEST(StatusTest, ToStringNamesTheCode) {
  EXPECT_EQ(Status::Mismatch("shapes").ToString(), "mismatch: shapes");
  EXPECT_EQ(Status::PeerLost("rank 2").ToString(), "peer lost: rank 2");
}

TEST(StatusTest, EveryCodeHasItsOwnName) {
  std::set<std::string> names;
  for (int code = 0; code <= 8; ++code) names.insert(StatusCodeName(static_cast<StatusCode>(code)));
  EXPECT_EQ(names.size(), 9u);
  EXPECT_STREQ(StatusCodeName(static_cast<StatusCode>(99)), "unknown status code");
}

TEST(StatusTest, WithPrefixKeepsTheCode) {
  const Status status = Status::Timeout("late").WithPrefix("start: ");
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_EQ(status.message(), "start: late");
  EXPECT_TRUE(Status().WithPrefix("start: ").ok());
}

Result<int> Half(int value) {
  if (value % 2 != 0) return Status::InvalidArgument("odd");
  return value / 2;
}

Result<int> Quarter(int value) {
  SYRTOS_ASSIGN_OR_RETURN(const int half, Half(value));
  return Half(half);
}

Status IsEven(int value) {
  SYRTOS_RETURN_IF_ERROR(Half(value).status());
  return Status::Ok();
}

TEST(ResultTest, MacrosPassTheFirstErrorOn) {
  EXPECT_EQ(Quarter(8).value(), 2);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
  EXPECT_EQ(Quarter(3).status().message(), "odd");
  EXPECT_TRUE(IsEven(4).ok());
  EXPECT_EQ(IsEven(5).code(), StatusCode::kInvalidArgument);
}

TEST(ResultTest, HoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  ASSERT_TRUE(result.ok());
  const std::unique_ptr<int> value = std::move(result).value();
  EXPECT_EQ(*value, 7);
}

}  // namespace
}  // namespace syrtos
