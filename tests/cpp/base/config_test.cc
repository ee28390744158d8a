#include "syrtos/base/config.h"

#include <gtest/gtest.h>

namespace syrtos {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

TEST(ConfigTest, AgreedSettingsOfTheDefaultConfig) {
  EXPECT_EQ(AgreedSettings(Config()), (Settings{{"fusion_threshold_bytes", "134217728"},
                                                {"cache_capacity", "65536"},
                                                {"backend", ""},
                                                {"strict_join", "false"}}));
}

TEST(ConfigTest, AgreedSettingsShowWhatWasSet) {
  Config config;
  config.fusion_threshold_bytes = 0;
  config.cache_capacity = 12;
  config.backend = "gloo";
  config.strict_join = true;
  EXPECT_EQ(AgreedSettings(config), (Settings{{"fusion_threshold_bytes", "0"},
                                              {"cache_capacity", "12"},
                                              {"backend", "gloo"},
                                              {"strict_join", "true"}}));
}

TEST(ConfigTest, WhatMayDifferIsNotAmongTheAgreedSettings) {
  Config config;
  config.rank = 3;
  config.size = 4;
  config.host = "elsewhere";
  config.peer_timeout = Seconds(99);
  config.timeline_path = "/tmp/x";
  EXPECT_EQ(AgreedSettings(config), AgreedSettings(Config()));
}

}  // namespace
}  // namespace syrtos
