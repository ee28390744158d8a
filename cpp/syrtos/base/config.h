// Every knob of the core, in one documented struct. C++ reads no environment variable: Python
// (python/syrtos/config.py) fills this from keyword arguments, SYRTOS_* and HOROVOD_* and tests
// that the field names agree.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace syrtos {

using Seconds = std::chrono::duration<double>;

struct Config {
  // ---- who we are (from the launcher) ----
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  std::string host = "localhost";     // shown in messages
  std::string address = "127.0.0.1";  // where this rank's listeners bind and are advertised
  std::string job_id;                 // prefixes all store keys
  uint64_t epoch = 0;                 // number of this engine among those of the job

  // ---- must agree on all ranks (compared in the hello) ----
  int64_t fusion_threshold_bytes = 128 << 20;  // a fused plan holds at most this much; 0: no fusion
  int64_t cache_capacity = 1 << 16;            // agreements remembered; 0: none
  std::string backend;                         // force one communicator by name; "": best score
  bool strict_join = false;  // refuse what is no allreduce while a rank has joined, as Horovod does

  // ---- may differ ----
  Seconds start_timeout{30.0};
  Seconds heartbeat_interval{1.0};
  Seconds peer_timeout{10.0};   // silence after which a rank counts as dead
  Seconds stall_warning{60.0};  // <= 0: no stall report
  Seconds stall_limit{0.0};     // <= 0: never an error
  std::string timeline_path;    // "": off
  bool timeline_mark_cycles = false;
  std::string gloo_plugin_path;  // file of libsyrtos_gloo.so; "": not available
};

// The settings that must agree, as ("name", "value") in a fixed order.
std::vector<std::pair<std::string, std::string>> AgreedSettings(const Config& config);

}  // namespace syrtos
