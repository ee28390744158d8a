// The first message of every connection between ranks: who calls, of which epoch, with which
// library version and settings. Both sides check; on unequal settings the error names each
// differing one with both values. The field `proof` is where the launcher's authentication will go
// (empty today).
//
// Failure: kShutdown where the epochs differ (a listener drops the caller and goes on: it is a
// straggler of an engine that has ended); kMismatch for size, version, rank and settings; kInternal
// for a malformed hello; kPeerLost and kTimeout as in channel.h.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "syrtos/transport/channel.h"

namespace syrtos {

enum class ChannelPurpose : uint8_t { kControl = 1, kHealth = 2 };

struct Hello {
  ChannelPurpose purpose = ChannelPurpose::kControl;
  uint64_t epoch = 0;
  int rank = 0;
  int size = 1;
  std::string version;
  std::string host;
  int64_t pid = 0;
  std::vector<std::string> backends;  // communicators this rank has
  std::vector<std::pair<std::string, std::string>> settings;
  std::string proof;

  uint64_t SettingsHash() const;  // FNV-1a over `settings`
};

std::string EncodeHello(const Hello& hello);
Result<Hello> DecodeHello(const std::string& bytes);
// Ok, or why `theirs` may not talk to `ours` (epoch, size, version, settings), naming rank and
// values.
Status CheckHello(const Hello& ours, const Hello& theirs);
// The caller's and the listener's side of the exchange: each sends its hello, reads the other's,
// checks it and sends a verdict, so that both sides raise the same text.
Result<Hello> ExchangeHello(Channel& channel, const Hello& ours, Seconds timeout);

}  // namespace syrtos
