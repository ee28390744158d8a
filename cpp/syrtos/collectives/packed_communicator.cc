#include "syrtos/collectives/packed_communicator.h"

#include <utility>

#include "syrtos/collectives/activities.h"
#include "syrtos/collectives/aligned_buffer.h"
#include "syrtos/collectives/guard.h"
#include "syrtos/collectives/layout.h"
#include "syrtos/collectives/packing.h"

namespace syrtos {
namespace {

// The fusion buffers that are not in use. Blocking communicators run one operation at a time and so
// need one; each further operation in flight needs its own.
class BufferPool {
 public:
  AlignedBuffer Take() {
    if (free_.empty()) return AlignedBuffer();
    AlignedBuffer buffer = std::move(free_.back());
    free_.pop_back();
    return buffer;
  }
  void Give(AlignedBuffer buffer) { free_.push_back(std::move(buffer)); }

 private:
  std::vector<AlignedBuffer> free_;
};

class PackedOperation : public Operation {
 public:
  PackedOperation(BufferPool& pool, const Collective& collective, std::vector<Part> parts)
      : pool_(pool), collective_(collective), parts_(std::move(parts)), buffer_(pool_.Take()) {}

  // The inner operation first: it may still use the buffer.
  ~PackedOperation() override {
    inner_.reset();
    pool_.Give(std::move(buffer_));
  }

  Status Start(Communicator& inner) {
    Part whole = PackedPart(collective_, parts_);
    const PackedRegions regions = RegionsOf(collective_, whole);
    uint8_t* memory = buffer_.Reserve(regions.bytes);
    whole.input = memory;
    whole.output = memory + regions.output_begin;
    output_ = static_cast<const uint8_t*>(whole.output);
    {
      const ActivityScope activity(collective_, "MEMCPY_IN_FUSION_BUFFER");
      Pack(collective_, parts_, memory);
    }
    std::vector<Part> list;
    list.push_back(std::move(whole));
    SYRTOS_ASSIGN_OR_RETURN(inner_, inner.Start(collective_, std::move(list)));
    return Status::Ok();
  }

  Result<bool> Progress() override {
    if (done_) return true;
    SYRTOS_ASSIGN_OR_RETURN(done_, inner_->Progress());
    if (done_) {
      const ActivityScope activity(collective_, "MEMCPY_OUT_FUSION_BUFFER");
      Unpack(collective_, parts_, output_);
    }
    return done_;
  }

 private:
  BufferPool& pool_;
  const Collective collective_;
  const std::vector<Part> parts_;
  AlignedBuffer buffer_;
  const uint8_t* output_ = nullptr;
  std::unique_ptr<Operation> inner_;
  bool done_ = false;
};

class PackedCommunicator : public Communicator {
 public:
  explicit PackedCommunicator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  int Score(const Collective& collective, int64_t bytes) const override {
    return inner_->Score(collective, bytes);
  }
  bool may_block() const override { return inner_->may_block(); }
  bool needs_contiguous() const override { return false; }

  Result<std::unique_ptr<Operation>> Start(const Collective& collective,
                                           std::vector<Part> parts) override {
    if (parts.size() == 1) return inner_->Start(collective, std::move(parts));
    SYRTOS_RETURN_IF_ERROR(CheckParts(collective, parts));
    return Guarded("fusion buffer", [&]() -> Result<std::unique_ptr<Operation>> {
      auto operation = std::make_unique<PackedOperation>(pool_, collective, std::move(parts));
      SYRTOS_RETURN_IF_ERROR(operation->Start(*inner_));
      return std::unique_ptr<Operation>(std::move(operation));
    });
  }

  void Abort(const Status& cause) override { inner_->Abort(cause); }

 private:
  BufferPool pool_;
  const std::unique_ptr<Communicator> inner_;  // gone before the buffers
};

}  // namespace

std::unique_ptr<Communicator> MakePackedCommunicator(std::unique_ptr<Communicator> inner) {
  return std::make_unique<PackedCommunicator>(std::move(inner));
}

}  // namespace syrtos
