#include "syrtos/transport/hello.h"

#include <tuple>

#include "syrtos/transport/bytes.h"

namespace syrtos {
namespace {

// Changes whenever the fields do. The version follows in every format, so that libraries that
// cannot read each other's hello can still say which versions met.
constexpr uint8_t kFormat = 1;
constexpr uint64_t kMaxHelloBytes = uint64_t{1} << 20;

std::string Who(const Hello& hello) {
  return "rank " + std::to_string(hello.rank) + " (host " + hello.host + ", pid " +
         std::to_string(hello.pid) + ")";
}

std::string Short(const Hello& hello) { return "rank " + std::to_string(hello.rank); }

const std::string* Find(const Hello& hello, const std::string& name) {
  for (const auto& [key, value] : hello.settings) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::string SettingText(const std::string* value) {
  return value == nullptr ? "not given" : "\"" + *value + "\"";
}

void AppendDifference(const std::string& name, const Hello& a, const Hello& b, std::string* text) {
  const std::string* in_a = Find(a, name);
  const std::string* in_b = Find(b, name);
  if (in_a != nullptr && in_b != nullptr && *in_a == *in_b) return;
  if (!text->empty()) *text += "; ";
  *text += name + " is " + SettingText(in_a) + " on " + Short(a) + " but " + SettingText(in_b) +
           " on " + Short(b);
}

std::string SettingsDifference(const Hello& a, const Hello& b) {
  std::string text;
  for (const auto& [name, value] : a.settings) AppendDifference(name, a, b, &text);
  for (const auto& [name, value] : b.settings) {
    if (Find(a, name) == nullptr) AppendDifference(name, a, b, &text);
  }
  return text;
}

// The comparison itself; the lower rank comes first so that both sides find the same words.
Status Compare(const Hello& a, const Hello& b) {
  if (a.epoch != b.epoch) {
    return Status::Shutdown(Who(a) + " belongs to engine " + std::to_string(a.epoch) +
                            " of the job but " + Who(b) + " to engine " + std::to_string(b.epoch) +
                            "; the older one has ended");
  }
  if (a.version != b.version) {
    return Status::Mismatch(Who(a) + " runs Syrtos " + a.version + " but " + Who(b) +
                            " runs Syrtos " + b.version + ". Install the same version everywhere.");
  }
  if (a.size != b.size) {
    return Status::Mismatch(Who(a) + " was started as one of " + std::to_string(a.size) +
                            " ranks but " + Who(b) + " as one of " + std::to_string(b.size) +
                            ". Start all ranks by one launch.");
  }
  for (const Hello* hello : {&a, &b}) {
    if (hello->rank < 0 || hello->rank >= hello->size) {
      return Status::Mismatch(Who(*hello) + " is no rank of a job of " +
                              std::to_string(hello->size) + ".");
    }
  }
  if (a.rank == b.rank) {
    return Status::Mismatch("two processes claim to be the same rank: " + Who(a) + " and " +
                            Who(b) + ". Give each process its own rank.");
  }
  const std::string difference = SettingsDifference(a, b);
  if (difference.empty()) return Status::Ok();
  return Status::Mismatch("the settings of " + Who(a) + " and " + Who(b) +
                          " differ: " + difference + ". Give all ranks the same settings.");
}

std::string EncodeVerdict(const Status& verdict) {
  ByteWriter writer;
  writer.U8(static_cast<uint8_t>(verdict.code()));
  writer.String(verdict.message());
  return writer.Take();
}

Status DecodeVerdict(const std::string& bytes) {
  ByteReader reader(bytes);
  const uint8_t code = reader.U8();
  std::string message = reader.String();
  if (!reader.done() || code > static_cast<uint8_t>(StatusCode::kInternal)) {
    return Status::Internal("malformed verdict on a hello");
  }
  if (code == 0) return Status::Ok();
  return {static_cast<StatusCode>(code), std::move(message)};
}

Result<Hello> Exchange(Channel& channel, const Hello& ours, Deadline deadline) {
  SYRTOS_RETURN_IF_ERROR(channel.SendBlocking(EncodeHello(ours), Remaining(deadline)));
  SYRTOS_ASSIGN_OR_RETURN(const std::string bytes, channel.ReceiveBlocking(Remaining(deadline)));
  Result<Hello> theirs = DecodeHello(bytes);
  const Status verdict = theirs.ok() ? CheckHello(ours, *theirs) : theirs.status();
  const Status sent = channel.SendBlocking(EncodeVerdict(verdict), Remaining(deadline));
  // Who cannot say hello is not waited for.
  if (!theirs.ok()) return theirs;
  // The peer's verdict is read even if ours is bad: closing with unread data would reset the
  // connection, and the peer might never see our words.
  const Result<std::string> answer = channel.ReceiveBlocking(Remaining(deadline));
  SYRTOS_RETURN_IF_ERROR(verdict);
  SYRTOS_RETURN_IF_ERROR(sent);
  if (!answer.ok()) return answer.status();
  SYRTOS_RETURN_IF_ERROR(DecodeVerdict(*answer));
  return theirs;
}

}  // namespace

uint64_t Hello::SettingsHash() const {
  // FNV-1a, 64 bit (http://www.isthe.com/chongo/tech/comp/fnv/), over the names and values, each
  // with its length before it so that shifting a byte from one to the next is seen.
  ByteWriter writer;
  for (const auto& [name, value] : settings) {
    writer.String(name);
    writer.String(value);
  }
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : writer.Take()) {
    hash ^= static_cast<uint8_t>(c);
    hash *= 0x100000001b3u;
  }
  return hash;
}

std::string EncodeHello(const Hello& hello) {
  ByteWriter writer;
  writer.U8(kFormat);
  writer.String(hello.version);
  writer.U8(static_cast<uint8_t>(hello.purpose));
  writer.U64(hello.epoch);
  writer.I64(hello.rank);
  writer.I64(hello.size);
  writer.String(hello.host);
  writer.I64(hello.pid);
  writer.Varint(hello.backends.size());
  for (const std::string& backend : hello.backends) writer.String(backend);
  writer.Varint(hello.settings.size());
  for (const auto& [name, value] : hello.settings) {
    writer.String(name);
    writer.String(value);
  }
  writer.String(hello.proof);
  return writer.Take();
}

Result<Hello> DecodeHello(const std::string& bytes) {
  ByteReader reader(bytes);
  Hello hello;
  const uint8_t format = reader.U8();
  hello.version = reader.String();
  if (reader.ok() && format != kFormat) {
    return Status::Mismatch("a peer of Syrtos " + hello.version + " says hello in format " +
                            std::to_string(format) + ", this library in format " +
                            std::to_string(kFormat) + ". Install the same version everywhere.");
  }
  const uint8_t purpose = reader.U8();
  hello.purpose = static_cast<ChannelPurpose>(purpose);
  hello.epoch = reader.U64();
  const int64_t rank = reader.I64();
  const int64_t size = reader.I64();
  hello.host = reader.String();
  hello.pid = reader.I64();
  for (size_t left = reader.Count(); left > 0; --left) hello.backends.push_back(reader.String());
  for (size_t left = reader.Count(2); left > 0; --left) {
    std::string name = reader.String();
    std::string value = reader.String();
    hello.settings.emplace_back(std::move(name), std::move(value));
  }
  hello.proof = reader.String();
  hello.rank = static_cast<int>(rank);
  hello.size = static_cast<int>(size);
  const bool known_purpose = purpose == static_cast<uint8_t>(ChannelPurpose::kControl) ||
                             purpose == static_cast<uint8_t>(ChannelPurpose::kHealth);
  if (!reader.done() || !known_purpose || hello.rank != rank || hello.size != size) {
    return Status::Internal("malformed hello of " + std::to_string(bytes.size()) + " bytes");
  }
  return hello;
}

Status CheckHello(const Hello& ours, const Hello& theirs) {
  const bool ours_first =
      std::tie(ours.rank, ours.host, ours.pid) < std::tie(theirs.rank, theirs.host, theirs.pid);
  return ours_first ? Compare(ours, theirs) : Compare(theirs, ours);
}

Result<Hello> ExchangeHello(Channel& channel, const Hello& ours, Seconds timeout) {
  // Until we know who it is, the peer may not make us hold more than a hello's worth.
  const uint64_t limit = channel.max_frame_bytes();
  channel.set_max_frame_bytes(kMaxHelloBytes);
  Result<Hello> theirs = Exchange(channel, ours, DeadlineAfter(timeout));
  channel.set_max_frame_bytes(limit);
  if (theirs.ok()) return theirs;
  // A bad verdict says itself who met; any other failure is about bytes and needs a word of
  // context.
  const StatusCode code = theirs.status().code();
  if (code == StatusCode::kMismatch || code == StatusCode::kShutdown) return theirs;
  return theirs.status().WithPrefix("saying hello: ");
}

}  // namespace syrtos
