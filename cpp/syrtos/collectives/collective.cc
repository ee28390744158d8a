#include "syrtos/collectives/collective.h"

#include <array>
#include <cstdlib>

#include "syrtos/base/log.h"

namespace syrtos {
namespace {

// Row i describes the kind with number i.
constexpr std::array<CollectiveInfo, 9> kTable = {{
    // kind                         name              moves  reduces root   same_shape axis   fuses
    {CollectiveKind::kAllreduce, "allreduce", true, true, false, true, false, true},
    {CollectiveKind::kAllgather, "allgather", true, false, false, false, true, true},
    {CollectiveKind::kBroadcast, "broadcast", true, false, true, true, false, true},
    {CollectiveKind::kAlltoall, "alltoall", true, false, false, false, true, true},
    {CollectiveKind::kReduceScatter, "reducescatter", true, true, false, true, true, true},
    {CollectiveKind::kBarrier, "barrier", false, false, false, false, false, false},
    {CollectiveKind::kJoin, "join", false, false, false, false, false, false},
    {CollectiveKind::kAddGroup, "add_process_set", false, false, false, false, false, false},
    {CollectiveKind::kRemoveGroup, "remove_process_set", false, false, false, false, false, false},
}};

constexpr bool RowsAreInOrder() {
  for (size_t i = 0; i < kTable.size(); ++i) {
    if (static_cast<size_t>(kTable[i].kind) != i) return false;
  }
  return true;
}
static_assert(RowsAreInOrder(), "a kind's number is its row");

// Index i names the op with number i, as the user writes it.
constexpr std::array<const char*, 6> kOpNames = {"Average", "Sum", "Adasum",
                                                 "Min",     "Max", "Product"};

}  // namespace

const CollectiveInfo& InfoOf(CollectiveKind kind) {
  const auto number = static_cast<uint8_t>(kind);
  if (!IsValidCollectiveKind(number)) {
    SYRTOS_LOG(kFatal, "collective") << "no collective has the number " << int{number};
    std::abort();
  }
  return kTable[number];
}

bool IsValidCollectiveKind(uint8_t number) { return number < kTable.size(); }

const char* ReduceOpName(ReduceOp op) {
  const auto number = static_cast<uint8_t>(op);
  return IsValidReduceOp(number) ? kOpNames[number] : "unknown";
}

bool IsValidReduceOp(uint8_t number) { return number < kOpNames.size(); }

Status CheckReducible(ReduceOp op, DType dtype) {
  const DTypeInfo& info = InfoOf(dtype);
  const std::string who = std::string("op=") + ReduceOpName(op);
  if (info.kind == DTypeClass::kOpaque) {
    return Status::InvalidArgument(
        who +
        " cannot combine elements of this dtype: Syrtos moves them as plain bytes. Use "
        "allgather, broadcast or alltoall, or convert to a numeric dtype first.");
  }
  if (info.kind == DTypeClass::kBool && op == ReduceOp::kAverage) {
    return Status::InvalidArgument(
        who +
        " is not defined for dtype bool: a mean of truth values is no truth value. Use Max (true "
        "on any rank) or Min (true on all ranks), or convert to float32 first.");
  }
  if (info.kind == DTypeClass::kComplex && (op == ReduceOp::kMin || op == ReduceOp::kMax)) {
    return Status::InvalidArgument(
        who + " is not defined for dtype " + info.name +
        ": complex numbers have no order. Reduce the absolute values, or "
        "the real and imaginary parts, instead.");
  }
  if (op == ReduceOp::kAdasum && info.kind != DTypeClass::kFloat) {
    return Status::InvalidArgument(
        who + " is not defined for dtype " + info.name +
        ": it scales vectors by their lengths and the angle between them, which takes real "
        "numbers. Use Sum, or convert to float32 first.");
  }
  return Status::Ok();
}

Status CheckReduction(CollectiveKind kind, ReduceOp op, DType dtype, int group_size) {
  SYRTOS_RETURN_IF_ERROR(CheckReducible(op, dtype));
  if (op != ReduceOp::kAdasum) return Status::Ok();
  if (kind != CollectiveKind::kAllreduce) {
    return Status::InvalidArgument(std::string("op=Adasum is not possible in ") +
                                   InfoOf(kind).name +
                                   ": it needs whole tensors. Use op=Average or op=Sum, or "
                                   "allreduce.");
  }
  if ((group_size & (group_size - 1)) != 0) {
    return Status::InvalidArgument(
        "op=Adasum combines ranks in pairs, so their number must be a power of two, but here it "
        "is " +
        std::to_string(group_size) +
        ". Use a process set of 1, 2, 4, 8, ... ranks, or op=Average.");
  }
  return Status::Ok();
}

}  // namespace syrtos
