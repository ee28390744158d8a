// Short ways to write requests and posts in tests of the engine's pure parts.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "syrtos/engine/messages.h"

namespace syrtos {
namespace metas {

inline PartMeta Part(Shape shape, DType dtype = DType::kFloat32) {
  PartMeta part;
  part.dtype = dtype;
  part.item_bytes = static_cast<uint32_t>(InfoOf(dtype).bytes);
  part.shape = std::move(shape);
  return part;
}

// One part; an unnamed one if `name` is empty.
inline RequestMeta Meta(CollectiveKind kind, std::string name, Shape shape,
                        DType dtype = DType::kFloat32) {
  RequestMeta meta;
  meta.kind = kind;
  meta.key.name = std::move(name);
  meta.parts.push_back(Part(std::move(shape), dtype));
  return meta;
}

inline RequestMeta Allreduce(std::string name, Shape shape = {4}, DType dtype = DType::kFloat32) {
  return Meta(CollectiveKind::kAllreduce, std::move(name), std::move(shape), dtype);
}

inline RequestMeta Allgather(std::string name, Shape shape) {
  return Meta(CollectiveKind::kAllgather, std::move(name), std::move(shape));
}

// Without data.
inline RequestMeta Control(CollectiveKind kind, std::string name, std::vector<int32_t> ranks = {}) {
  RequestMeta meta;
  meta.kind = kind;
  meta.key.name = std::move(name);
  meta.ranks = std::move(ranks);
  return meta;
}

inline Post Full(RequestMeta meta) {
  Post post;
  post.meta = std::move(meta);
  return post;
}

inline Post ById(uint32_t id, uint64_t call = 0) {
  Post post;
  post.cache_id = id;
  post.call = call;
  return post;
}

// Everything in one line, to compare and to print.
inline std::string Text(const Agreement& a) {
  std::string text = std::to_string(a.key.group) + ":" + a.key.name + "#" +
                     std::to_string(a.key.call) + " value=" + std::to_string(a.value) + " absent=";
  for (int32_t rank : a.absent) text += std::to_string(rank) + ",";
  for (const auto& rows : a.rows) {
    text += " rows=";
    for (int64_t r : rows) text += std::to_string(r) + ",";
  }
  return text + " " + a.error.ToString();
}

}  // namespace metas
}  // namespace syrtos
