// Bytes of posts and plan batches; the format is docs/wire_format.md. Pure functions.
// Failure: decoding anything malformed gives kInternal "malformed ..."; it never reads past the
// end, never allocates more than a fixed multiple of the input, and never throws. A cached
// agreement travels as its id and call number alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "syrtos/base/result.h"
#include "syrtos/engine/messages.h"

namespace syrtos {

std::string EncodePosts(const std::vector<Post>& posts);
Result<std::vector<Post>> DecodePosts(std::string_view bytes);
std::string EncodePlanBatch(const PlanBatch& batch);
Result<PlanBatch> DecodePlanBatch(std::string_view bytes);

}  // namespace syrtos
