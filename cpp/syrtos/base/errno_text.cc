#include "syrtos/base/errno_text.h"

#include <string.h>

namespace syrtos {

std::string ErrnoText(int number) {
  char buffer[128];
  // The GNU variant: returns the text, which need not lie in `buffer`.
  const char* text = strerror_r(number, buffer, sizeof buffer);
  return std::string(text) + " (errno " + std::to_string(number) + ")";
}

}  // namespace syrtos
