// Lends a backend that wants contiguous memory to callers with lists of tensors: owns the fusion
// buffer, packs into it and unpacks from it; single parts go straight through. The buffer grows to
// what was needed and is kept.
#pragma once

#include <memory>

#include "syrtos/collectives/communicator.h"

namespace syrtos {

std::unique_ptr<Communicator> MakePackedCommunicator(std::unique_ptr<Communicator> inner);

}  // namespace syrtos
