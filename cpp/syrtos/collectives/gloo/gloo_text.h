// Gloo's error texts, for users.
#pragma once

#include <string>

namespace syrtos {

// They begin with "[file:line] " of the machine that built Gloo.
inline std::string WithoutSourceLine(const std::string& text) {
  const size_t end = text.find("] ");
  return text.empty() || text[0] != '[' || end == std::string::npos ? text : text.substr(end + 2);
}

}  // namespace syrtos
