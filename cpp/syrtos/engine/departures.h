// Who is leaving, and whether the others have finished what they had agreed with it.
//
// A rank that closed its connections the moment its own last plan is done could cut off a slower
// member that is still reading. So it announces that it leaves; rank 0 passes that on behind all
// plans it has sent; every rank answers when it has run them; then rank 0 lets the leaver go.
//
// Pure bookkeeping; the frames are the negotiator's. Owner: the negotiator. Threads: the holder of
// the baton. On ranks other than 0 only `Heard`, `TakeUnanswered` and the own state are used.
#pragma once

#include <map>
#include <set>
#include <vector>

namespace syrtos {

class Departures {
 public:
  // rank 0: `rank` leaves; answers are awaited from `others` (its own included).
  void Begin(int rank, std::set<int> others);
  // rank 0: `rank` has run all it had agreed with `leaver`. Returns the ranks that may go now.
  std::vector<int> Answer(int rank, int leaver);
  // rank 0: `rank` is gone and will answer nothing. Returns the ranks that may go now.
  std::vector<int> Gone(int rank);
  // rank 0: nobody is waiting to go.
  bool empty() const { return awaited_.empty(); }

  // Any rank: this one has heard that `rank` leaves, and owes an answer.
  void Heard(int rank) { unanswered_.push_back(rank); }
  bool owes_answer() const { return !unanswered_.empty(); }
  std::vector<int> TakeUnanswered();

 private:
  std::map<int, std::set<int>> awaited_;  // leaver -> who has not answered
  std::vector<int> unanswered_;
};

}  // namespace syrtos
