// Uninitialised memory, aligned for vector loops, that grows and is kept for the next operation.
//
// Failure: Reserve throws std::bad_alloc, as any container would; communicators turn it into a
// Status at their edge (guard.h). Threads: as a container.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace syrtos {

class AlignedBuffer {
 public:
  // At least `bytes` of memory; the old content is lost if it has to grow.
  uint8_t* Reserve(size_t bytes) {
    if (bytes > capacity_) {
      data_.reset();
      capacity_ = 0;
      const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
      if (rounded < bytes) throw std::bad_alloc();
      data_.reset(static_cast<uint8_t*>(std::aligned_alloc(kAlignment, rounded)));
      if (data_ == nullptr) throw std::bad_alloc();
      capacity_ = rounded;
    }
    return data_.get();
  }

  uint8_t* data() const { return data_.get(); }
  size_t capacity() const { return capacity_; }

 private:
  static constexpr size_t kAlignment = 64;  // a cache line

  struct Free {
    void operator()(uint8_t* memory) const { std::free(memory); }
  };
  std::unique_ptr<uint8_t, Free> data_;
  size_t capacity_ = 0;
};

}  // namespace syrtos
