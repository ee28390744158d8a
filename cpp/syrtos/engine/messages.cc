#include "syrtos/engine/messages.h"

namespace syrtos {
namespace {

// NaN scales are equal here: a request must be equal to itself.
bool SameScale(double a, double b) { return a == b || (a != a && b != b); }

}  // namespace

bool RequestMeta::SameSignature(const RequestMeta& o) const {
  return kind == o.kind && key.group == o.key.group && key.name == o.key.name && op == o.op &&
         SameScale(prescale, o.prescale) && SameScale(postscale, o.postscale) && root == o.root &&
         parts == o.parts && ranks == o.ranks && average_active == o.average_active;
}

}  // namespace syrtos
