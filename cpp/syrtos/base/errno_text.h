// The system's words for an error number, safe to use from any thread.
#pragma once

#include <string>

namespace syrtos {

// "Connection refused (errno 111)".
std::string ErrnoText(int number);

}  // namespace syrtos
