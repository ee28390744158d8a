#include "syrtos/engine/trace_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace syrtos {
namespace {

class TraceFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("syrtos_trace_" + std::to_string(getpid()) + "_" +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  std::filesystem::path folder_;
};

TEST(JsonStringTest, EscapesWhatJsonCannotHold) {
  EXPECT_EQ(JsonString(""), "\"\"");
  EXPECT_EQ(JsonString("a/b:0"), "\"a/b:0\"");
  EXPECT_EQ(JsonString("say \"x\" \\"), R"("say \"x\" \\")");
  EXPECT_EQ(JsonString("a\nb\t\x01"), R"("a\u000ab\u0009\u0001")");
  EXPECT_EQ(JsonString(std::string("a\0b", 3)), R"("a\u0000b")");
}

TEST(JsonStringTest, KeepsUtf8AndShowsOtherBytes) {
  for (const char* text : {"\xc3\xbc", "\xe2\x82\xac", "\xed\x9f\xbf", "\xf0\x9f\x98\x80"}) {
    EXPECT_EQ(JsonString(text), "\"" + std::string(text) + "\"");
  }
  EXPECT_EQ(JsonString("a\xff"), R"("a\\xff")");
  EXPECT_EQ(JsonString("\xc3("), R"("\\xc3(")") << "a cut character";
  EXPECT_EQ(JsonString("\xe2\x82"), R"("\\xe2\\x82")") << "cut by the end";
  EXPECT_EQ(JsonString("\xc0\xaf"), R"("\\xc0\\xaf")") << "overlong";
  EXPECT_EQ(JsonString("\xed\xa0\x80"), R"("\\xed\\xa0\\x80")") << "a surrogate";
  EXPECT_EQ(JsonString("\xf4\x90\x80\x80"), R"("\\xf4\\x90\\x80\\x80")") << "beyond Unicode";
}

TEST_F(TraceFileTest, IsCompleteAfterEveryFlush) {
  TraceFile file;
  ASSERT_TRUE(file.Open(Path("t.json"), "{\"a\":1}").ok());
  EXPECT_EQ(Read(Path("t.json")), "[\n{\"a\":1}\n]\n");
  file.Append("{\"b\":2}");
  EXPECT_EQ(Read(Path("t.json")), "[\n{\"a\":1}\n]\n") << "buffered";
  file.Flush();
  EXPECT_EQ(Read(Path("t.json")), "[\n{\"a\":1},\n{\"b\":2}\n]\n");
  file.Append("{}");
  file.Append("{}");
  file.Close();
  EXPECT_EQ(Read(Path("t.json")), "[\n{\"a\":1},\n{\"b\":2},\n{},\n{}\n]\n");
  EXPECT_FALSE(file.is_open());
  file.Append("{}");  // nowhere
  file.Flush();
  EXPECT_EQ(Read(Path("t.json")), "[\n{\"a\":1},\n{\"b\":2},\n{},\n{}\n]\n");
}

TEST_F(TraceFileTest, WritesByItselfBeforeItHoldsMuch) {
  TraceFile file;
  ASSERT_TRUE(file.Open(Path("t.json"), "{}").ok());
  const std::string event = "{\"name\":\"" + std::string(1000, 'x') + "\"}";
  for (int i = 0; i < 1000; ++i) file.Append(event);
  const std::string text = Read(Path("t.json"));
  EXPECT_GT(text.size(), 900000u);
  EXPECT_EQ(text.substr(text.size() - 4), "}\n]\n");
}

TEST_F(TraceFileTest, AnAbandonedFileIsNotWrittenAgain) {
  TraceFile first, second, other;
  ASSERT_TRUE(first.Open(Path("t.json"), "{\"n\":1}").ok());
  EXPECT_FALSE(first.IsSameFileAs(second)) << "not open";
  first.Append("{}");
  std::filesystem::create_symlink(Path("t.json"), Path("link.json"));
  ASSERT_TRUE(second.Open(Path("link.json"), "{\"n\":2}").ok());
  ASSERT_TRUE(other.Open(Path("other.json"), "{}").ok());
  EXPECT_TRUE(first.IsSameFileAs(second));
  EXPECT_FALSE(first.IsSameFileAs(other));
  first.Abandon();
  EXPECT_FALSE(first.is_open());
  EXPECT_EQ(Read(Path("t.json")), "[\n{\"n\":2}\n]\n");
}

TEST_F(TraceFileTest, AnImpossiblePathIsNamed) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  for (const std::string& path :
       {folder_.string(), Path("no/such/folder.json"), std::string(), Path("pipe"),
        std::string("/dev/full"), Path(std::string(300, 'x'))}) {
    TraceFile file;
    const Status status = file.Open(path, "{}");
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("\"" + path + "\" cannot be written"), std::string::npos)
        << status.message();
    EXPECT_FALSE(file.is_open());
  }
}

TEST_F(TraceFileTest, AFullDiskLeavesACompleteFile) {
  TraceFile file;
  ASSERT_TRUE(file.Open(Path("t.json"), "{}").ok());
  file.Append("{\"a\":1}");
  file.Flush();
  const std::string before = Read(Path("t.json"));
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = old;
  small.rlim_cur = before.size() + 10;  // the next write is cut after some bytes
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  file.Append("{\"name\":\"" + std::string(100, 'x') + "\"}");
  testing::internal::CaptureStderr();
  file.Flush();
  const std::string warning = testing::internal::GetCapturedStderr();
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, previous);
  EXPECT_FALSE(file.is_open());
  EXPECT_EQ(Read(Path("t.json")), before);
  EXPECT_NE(warning, "") << "cut by the limit as well, so not all of it is here";
}

}  // namespace
}  // namespace syrtos
