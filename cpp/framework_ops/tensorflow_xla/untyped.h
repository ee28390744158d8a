// What XLA's older interface calls, in TensorFlow 2.16 and 2.17. It knows no futures: a call waits
// for the other ranks on the thread that XLA calls it on.
#pragma once

#include <cstddef>

#include "framework_ops/xla/host.h"

namespace syrtos_tf_xla {

// How messages call programs of TensorFlow; early_futures is left to the typed interface.
extern const syrtos_xla::Host kTensorflow;

// `out` is the only result, or an array of pointers to all; `inputs` always is an array; `opaque`
// is a Description; `status` is a std::optional<std::string> that gets the text of an error.
void UntypedCollective(void* out, const void** inputs, const char* opaque, size_t length,
                       void* status);

// Two results of one int32_t each; `opaque` is the number of the group.
void UntypedGroup(void* out, const void** inputs, const char* opaque, size_t length, void* status);

}  // namespace syrtos_tf_xla
