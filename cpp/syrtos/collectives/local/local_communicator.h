// The communicator of a group of one: copies, with the scales applied. The template for a newcomer.
#pragma once

#include <memory>

#include "syrtos/collectives/communicator.h"

namespace syrtos {

std::unique_ptr<Communicator> MakeLocalCommunicator();

}  // namespace syrtos
