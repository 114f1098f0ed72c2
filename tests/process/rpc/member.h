#pragma once

namespace farad::test {

/// Plain bytes: see Nursery.
struct MemberPlan {
  char transport[8] = {};
  char rendezvous[120] = {};
  int rank = 1;
  int size = 2;
  int lost_after_ms = 3000;
};

/// Joins, serves calls and closes when the others do. Ends the process: with 0, with 1 if close() lost somebody, with 2
/// if anything else went wrong.
[[noreturn]] void be_a_member(const MemberPlan& plan);

}  // namespace farad::test
