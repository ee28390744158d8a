// Ranks as the user reads them in messages. Pure functions; `hosts` (per rank) may be empty.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace syrtos {

// `rank 2 (node-b)`, or `rank 2` where the host is unknown.
std::string RankText(int32_t rank, const std::vector<std::string>& hosts);
// Ascending ranks, short even for thousands: `rank 1 (node-a)`, `ranks 0 (node-a), 3 (node-b)`,
// `ranks 0-511, 700 (513 ranks)`, `no rank`.
std::string RanksText(const std::vector<int32_t>& ranks, const std::vector<std::string>& hosts);
// `[0, 1, 5]`, as Python prints it.
std::string ListText(const std::vector<int32_t>& numbers);

}  // namespace syrtos
