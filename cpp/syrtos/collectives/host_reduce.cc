#include "syrtos/collectives/host_reduce.h"

#include <cstdlib>

#include "syrtos/base/log.h"
#include "syrtos/collectives/reduce_loops.h"

namespace syrtos {

std::unique_ptr<Reducer> MakeReducer(const Collective& collective, int64_t capacity) {
  switch (InfoOf(collective.dtype).kind) {
    case DTypeClass::kBool:
    case DTypeClass::kSigned:
    case DTypeClass::kUnsigned:
      return MakeIntegerReducer(collective, capacity);
    case DTypeClass::kFloat:
    case DTypeClass::kComplex:
      return MakeFloatReducer(collective, capacity);
    case DTypeClass::kOpaque:
      break;
  }
  SYRTOS_LOG(kFatal, "reduce") << "a collective that CheckReducible refuses reached MakeReducer";
  std::abort();
}

}  // namespace syrtos
