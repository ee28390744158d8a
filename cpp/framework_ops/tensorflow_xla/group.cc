#include "framework_ops/tensorflow_xla/group.h"

#include <string>

#include "framework_ops/xla/mapping.h"
#include "syrtos/c_api.h"

namespace syrtos_tf_xla {

syrtos_xla::Outcome TellGroup(uint32_t group, void* size, void* position) {
  const SyrtosApi* api = syrtos_api(SYRTOS_C_API_VERSION);
  if (api == nullptr || api->size() < 0) {
    return {syrtos_xla::kNotInitialized, "Syrtos has no engine in this process: call init() first"};
  }
  const int32_t ranks = api->group_size(group);
  if (ranks < 0) {
    return {syrtos_xla::kInvalidArgument,
            "there is no process set " + std::to_string(group) + " (it may have been removed)"};
  }
  *static_cast<int32_t*>(size) = ranks;
  *static_cast<int32_t*>(position) = api->group_rank(group);
  return {};
}

}  // namespace syrtos_tf_xla
