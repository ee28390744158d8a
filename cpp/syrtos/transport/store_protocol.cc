#include "syrtos/transport/store_protocol.h"

#include "syrtos/transport/bytes.h"

namespace syrtos {

std::string EncodeStoreRequest(const StoreRequest& request) {
  ByteWriter writer;
  writer.U8(static_cast<uint8_t>(request.op));
  writer.String(request.key);
  switch (request.op) {
    case StoreOp::kSet:
      writer.String(request.value);
      break;
    case StoreOp::kGet:
      writer.F64(request.timeout.count());
      break;
    case StoreOp::kAdd:
      writer.I64(request.delta);
      break;
    case StoreOp::kRemove:
      break;
  }
  return writer.Take();
}

Result<StoreRequest> DecodeStoreRequest(std::string_view bytes) {
  ByteReader reader(bytes);
  StoreRequest request;
  const uint8_t op = reader.U8();
  request.op = static_cast<StoreOp>(op);
  request.key = reader.String();
  switch (request.op) {
    case StoreOp::kSet:
      request.value = reader.String();
      break;
    case StoreOp::kGet:
      request.timeout = Seconds(reader.F64());
      break;
    case StoreOp::kAdd:
      request.delta = reader.I64();
      break;
    case StoreOp::kRemove:
      break;
    default:
      return Status::Internal("unknown store operation " + std::to_string(op));
  }
  if (!reader.done()) {
    return Status::Internal("malformed store request of " + std::to_string(bytes.size()) +
                            " bytes");
  }
  return request;
}

std::string EncodeStoreAnswer(const Result<std::string>& answer) {
  ByteWriter writer;
  writer.U8(static_cast<uint8_t>(answer.status().code()));
  writer.String(answer.ok() ? answer.value() : answer.status().message());
  return writer.Take();
}

Result<std::string> DecodeStoreAnswer(std::string_view bytes) {
  ByteReader reader(bytes);
  const uint8_t code = reader.U8();
  std::string text = reader.String();
  if (!reader.done() || code > static_cast<uint8_t>(StatusCode::kInternal)) {
    return Status::Internal("malformed store answer of " + std::to_string(bytes.size()) + " bytes");
  }
  if (code != 0) return Status(static_cast<StatusCode>(code), std::move(text));
  return text;
}

}  // namespace syrtos
