#include "syrtos/engine/timeline.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "engine/engine_fixture.h"
#include "engine/metas.h"

namespace syrtos {
namespace {

using Kind = CollectiveKind;

struct Event {
  std::string phase, name, line;
  int pid = 0;
  int tid = 0;
  double ts = 0;
};

// What stands behind `key` in the line, up to one of `ends`.
std::string Field(const std::string& line, const std::string& key, const char* ends) {
  const size_t begin = line.find(key);
  if (begin == std::string::npos) return "";
  const size_t value = begin + key.size();
  return line.substr(value, line.find_first_of(ends, value) - value);
}

// One event per line, as TraceFile promises; the syntax is checked by the Python tests.
std::vector<Event> ReadEvents(const std::string& path) {
  std::vector<Event> events;
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line == "[" || line == "]") continue;
    Event event;
    event.line = line;
    event.phase = Field(line, "\"ph\":\"", "\"");
    event.name = Field(line, "\"name\":\"", "\"");
    event.pid = std::atoi(Field(line, "\"pid\":", ",}").c_str());
    event.tid = std::atoi(Field(line, "\"tid\":", ",}").c_str());
    event.ts = std::atof(Field(line, "\"ts\":", ",}").c_str());
    events.push_back(event);
  }
  return events;
}

// The spans of a label as text: "NEGOTIATE_ALLREDUCE( 0 1 ) ALLREDUCE( QUEUE( ) )". Expects that
// they nest, close and go forward in time.
std::string Spans(const std::vector<Event>& events, const std::string& label, int tid = 0) {
  int pid = -1;
  std::string text;
  int depth = 0;
  double last = 0;
  for (const Event& event : events) {
    if (event.phase == "M" && event.line.find("\"name\":\"" + label + "\"}") != std::string::npos) {
      EXPECT_EQ(pid, -1) << "two rows of one label";
      pid = event.pid;
    }
    if (event.phase == "M" || event.pid != pid || event.tid != tid) continue;
    EXPECT_GE(event.ts, last);
    last = event.ts;
    text += text.empty() ? "" : " ";
    if (event.phase == "B") {
      text += event.name + "(";
      ++depth;
    } else if (event.phase == "E") {
      text += ")";
      EXPECT_GE(--depth, 0);
    } else {
      text += event.name;
    }
  }
  EXPECT_EQ(depth, 0) << label;
  return text;
}

class TimelineTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() /
             ("syrtos_timeline_" + std::to_string(getpid()) + "_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()))
                .string();
  }
  void TearDown() override {
    for (const char* tail : {"", ".2", ".0", ".1"}) std::filesystem::remove(path_ + tail);
  }

  std::vector<Event> Stopped() {
    timeline_.Stop();
    return ReadEvents(path_);
  }

  std::string path_;
  Timeline timeline_;
};

TEST_F(TimelineTest, FileOfSaysWhoWritesWhat) {
  EXPECT_EQ(Timeline::FileOf("/tmp/t.json", 0), "/tmp/t.json");
  EXPECT_EQ(Timeline::FileOf("/tmp/t.json", 3), "");
  EXPECT_EQ(Timeline::FileOf("/tmp/t{rank}.json", 0), "/tmp/t0.json");
  EXPECT_EQ(Timeline::FileOf("/tmp/t{rank}.json", 12), "/tmp/t12.json");
}

TEST_F(TimelineTest, DrawsOneRequestFromPostToEnd) {
  ASSERT_TRUE(timeline_.Start(path_, 0, false).ok());
  const RequestMeta meta = metas::Allreduce("w", {2, 3});
  timeline_.RankReady(1, Kind::kAllreduce, meta.key);  // before this rank's own post
  timeline_.Posted(meta);
  timeline_.RankReady(0, Kind::kAllreduce, meta.key);
  timeline_.Agreed(meta);
  timeline_.ActivityBegin(meta.key, "MEMCPY_IN_FUSION_BUFFER");
  timeline_.ActivityEnd(meta.key);
  timeline_.ActivityBegin(meta.key, "GLOO_ALLREDUCE");
  timeline_.ActivityEnd(meta.key);
  timeline_.Ended(meta.key);
  const std::vector<Event> events = Stopped();
  EXPECT_EQ(Spans(events, "allreduce.w"),
            "NEGOTIATE_ALLREDUCE( 1 0 ) ALLREDUCE( QUEUE( ) MEMCPY_IN_FUSION_BUFFER( ) "
            "GLOO_ALLREDUCE( ) )");
  EXPECT_NE(events.front().line.find("start_time_since_epoch_in_micros"), std::string::npos);
  const auto begins = std::find_if(events.begin(), events.end(),
                                   [](const Event& event) { return event.name == "ALLREDUCE"; });
  EXPECT_NE(begins->line.find(R"x("dtype":"float32","shape":"(2, 3)")x"), std::string::npos);
}

TEST_F(TimelineTest, RequestsOfOneNameInFlightHaveLanesOfTheirOwn) {
  ASSERT_TRUE(timeline_.Start(path_, 0, false).ok());
  std::vector<RequestMeta> unnamed(3, metas::Allreduce(""));
  for (size_t i = 0; i < 3; ++i) unnamed[i].key.call = i + 1;
  for (const RequestMeta& meta : unnamed) timeline_.Posted(meta);
  timeline_.Agreed(unnamed[1]);
  timeline_.Ended(unnamed[1].key);
  timeline_.Agreed(unnamed[0]);
  unnamed[1].key.call = 4;
  timeline_.Posted(unnamed[1]);  // in the lane that is free again
  for (const RequestMeta& meta : unnamed) timeline_.Ended(meta.key);
  const std::vector<Event> events = Stopped();
  const std::string whole = "NEGOTIATE_ALLREDUCE( ) ALLREDUCE( QUEUE( ) )";
  EXPECT_EQ(Spans(events, "allreduce.noname", 0), whole);
  EXPECT_EQ(Spans(events, "allreduce.noname", 1), whole + " NEGOTIATE_ALLREDUCE( )");
  EXPECT_EQ(Spans(events, "allreduce.noname", 2), "NEGOTIATE_ALLREDUCE( )");
}

TEST_F(TimelineTest, ANextRequestMayBePostedWhileThisOneRuns) {
  ASSERT_TRUE(timeline_.Start(path_, 0, false).ok());
  const RequestMeta meta = metas::Allreduce("w");
  timeline_.Posted(meta);
  timeline_.Agreed(meta);
  timeline_.RankReady(1, Kind::kAllreduce, meta.key);  // rank 1 is a step ahead
  timeline_.ActivityBegin(meta.key, "GLOO_ALLREDUCE");
  timeline_.ActivityEnd(meta.key);
  timeline_.Ended(meta.key);
  timeline_.Posted(meta);
  timeline_.Agreed(meta);
  timeline_.Ended(meta.key);
  const std::vector<Event> events = Stopped();
  EXPECT_EQ(Spans(events, "allreduce.w", 0),
            "NEGOTIATE_ALLREDUCE( ) ALLREDUCE( QUEUE( ) GLOO_ALLREDUCE( ) )");
  EXPECT_EQ(Spans(events, "allreduce.w", 1), "NEGOTIATE_ALLREDUCE( 1 ) ALLREDUCE( QUEUE( ) )");
}

TEST_F(TimelineTest, SpansCloseHoweverARequestEnds) {
  ASSERT_TRUE(timeline_.Start(path_, 0, true).ok());
  const RequestMeta failed = metas::Allreduce("failed");
  timeline_.Posted(failed);
  timeline_.Ended(failed.key);
  const RequestMeta others = metas::Allgather("others", {3});
  timeline_.RankReady(2, Kind::kAllgather, others.key);
  timeline_.AgreedByOthers(others.key);
  const RequestMeta barrier = metas::Control(Kind::kBarrier, "all");
  timeline_.Posted(barrier);
  timeline_.Agreed(barrier);
  timeline_.Ended(barrier.key);
  const RequestMeta cut = metas::Allreduce("cut");
  timeline_.Posted(cut);
  timeline_.Agreed(cut);
  timeline_.ActivityBegin(cut.key, "LOCAL_ALLREDUCE");  // and never ends
  timeline_.Cycle();
  const std::vector<Event> events = Stopped();
  EXPECT_EQ(Spans(events, "allreduce.failed"), "NEGOTIATE_ALLREDUCE( )");
  EXPECT_EQ(Spans(events, "allgather.others"), "NEGOTIATE_ALLGATHER( 2 )");
  EXPECT_EQ(Spans(events, "barrier.all"), "NEGOTIATE_BARRIER( )");
  EXPECT_EQ(Spans(events, "allreduce.cut"),
            "NEGOTIATE_ALLREDUCE( ) ALLREDUCE( QUEUE( ) LOCAL_ALLREDUCE( ) )");
  EXPECT_EQ(std::count_if(events.begin(), events.end(),
                          [](const Event& event) { return event.name == "CYCLE_START"; }),
            1);
}

TEST_F(TimelineTest, StartsInTheMiddleAndAgainInAnotherFile) {
  const RequestMeta early = metas::Allreduce("early");
  timeline_.Posted(early);
  ASSERT_TRUE(timeline_.Start(path_, 0, false).ok());
  timeline_.Agreed(early);
  timeline_.ActivityBegin(early.key, "GLOO_ALLREDUCE");
  ASSERT_TRUE(timeline_.Start(path_ + ".2", 1, false).ok());
  timeline_.ActivityEnd(early.key);
  timeline_.Ended(early.key);
  const RequestMeta late = metas::Allreduce("late");
  timeline_.Posted(late);
  timeline_.Ended(late.key);
  EXPECT_FALSE(timeline_.Start("/nowhere/t.json", 1, false).ok());
  EXPECT_TRUE(timeline_.on()) << "the old one goes on";
  timeline_.Stop();
  EXPECT_FALSE(timeline_.on());
  timeline_.Posted(late);
  EXPECT_EQ(ReadEvents(path_).size(), 1u);
  EXPECT_EQ(Spans(ReadEvents(path_ + ".2"), "allreduce.late"), "NEGOTIATE_ALLREDUCE( )");
}

TEST_F(TimelineTest, AStartInPlaceOfAnotherEndsItsSpans) {
  ASSERT_TRUE(timeline_.Start(path_, 0, false).ok());
  const RequestMeta meta = metas::Allreduce("w");
  timeline_.Posted(meta);
  timeline_.Agreed(meta);
  ASSERT_TRUE(timeline_.Start(path_ + ".2", 0, false).ok());
  EXPECT_EQ(Spans(ReadEvents(path_), "allreduce.w"),
            "NEGOTIATE_ALLREDUCE( ) ALLREDUCE( QUEUE( ) )");
  timeline_.Posted(metas::Allreduce("v"));
  ASSERT_TRUE(timeline_.Start(path_ + ".2", 0, false).ok());  // the same file anew
  timeline_.Posted(metas::Allreduce("u"));
  timeline_.Stop();
  const std::vector<Event> events = ReadEvents(path_ + ".2");
  EXPECT_EQ(Spans(events, "allreduce.u"), "NEGOTIATE_ALLREDUCE( )");
  EXPECT_EQ(events.size(), 4u) << "nothing of before";
}

TEST_F(TimelineTest, NamesAreBoundedAndGroupsKeptApart) {
  ASSERT_TRUE(timeline_.Start(path_, 0, false).ok());
  RequestMeta meta = metas::Allreduce("allreduce.w");  // named by the user as Horovod would
  timeline_.Posted(meta);
  meta.key.group = 3;
  timeline_.Posted(meta);
  for (size_t i = 0; i < Timeline::kMostNames + 10; ++i) {
    const RequestMeta other = metas::Allreduce("step" + std::to_string(i));
    timeline_.Posted(other);
    timeline_.Ended(other.key);
  }
  const std::vector<Event> events = Stopped();
  EXPECT_EQ(Spans(events, "allreduce.w"), "NEGOTIATE_ALLREDUCE( )");
  EXPECT_EQ(Spans(events, "allreduce.w (process set 3)"), "NEGOTIATE_ALLREDUCE( )");
  EXPECT_EQ(std::count_if(events.begin(), events.end(),
                          [](const Event& event) { return event.phase == "M"; }),
            static_cast<long>(Timeline::kMostNames) + 2);
}

// Two ranks over Gloo, as a user would see it.
TEST_F(TimelineTest, AnEngineDrawsFusionAndTheReadyRanks) {
  WorldOptions options;
  options.configure = [this](Config& config) { config.timeline_path = path_ + ".{rank}"; };
  RunWorld(2, options, [](RankEngine& self) {
    const std::vector<float> input(100, 1.0f);
    std::vector<float> a(100), b(100);
    Request request = MakeRequest(Kind::kAllreduce, "pair");
    AddPart(request, DType::kFloat32, {100}, input, &a);
    AddPart(request, DType::kFloat32, {100}, input, &b);
    ASSERT_TRUE(self.Await(self.engine->Submit(std::move(request))).ok());
    Request gather = MakeRequest(Kind::kAllgather, "rows");
    AddPart<float>(gather, DType::kFloat32, {100}, input, nullptr);
    ASSERT_TRUE(self.Await(self.engine->Submit(std::move(gather))).ok());
  });
  for (int rank : {0, 1}) {
    const std::vector<Event> events = ReadEvents(path_ + "." + std::to_string(rank));
    std::string pair = Spans(events, "allreduce.pair");
    const std::string tail =
        ") ALLREDUCE( QUEUE( ) MEMCPY_IN_FUSION_BUFFER( ) GLOO_ALLREDUCE( ) "
        "MEMCPY_OUT_FUSION_BUFFER( ) )";
    if (rank == 0) {  // either may be ready first
      EXPECT_TRUE(pair == "NEGOTIATE_ALLREDUCE( 0 1 " + tail ||
                  pair == "NEGOTIATE_ALLREDUCE( 1 0 " + tail)
          << pair;
    } else {
      EXPECT_EQ(pair, "NEGOTIATE_ALLREDUCE( " + tail);
    }
    const std::string rows = Spans(events, "allgather.rows");
    EXPECT_NE(rows.find("ALLGATHER( QUEUE( ) ALLOCATE_OUTPUT( ) GLOO_ALLGATHER( ) )"),
              std::string::npos)
        << rows;
  }
}

}  // namespace
}  // namespace syrtos
