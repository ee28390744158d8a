#include "syrtos/base/config.h"

namespace syrtos {

std::vector<std::pair<std::string, std::string>> AgreedSettings(const Config& config) {
  return {
      {"fusion_threshold_bytes", std::to_string(config.fusion_threshold_bytes)},
      {"cache_capacity", std::to_string(config.cache_capacity)},
      {"backend", config.backend},
      {"strict_join", config.strict_join ? "true" : "false"},
  };
}

}  // namespace syrtos
