// A worker for the tests on several machines. Joins the group that its environment describes, says where it listens and
// by which transport it reaches each other member, sends it a tensor and checks what it sends back.

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <farad/error.h>

#include <cstdio>
#include <exception>
#include <string>
#include <utility>

#include "post_office.h"

namespace farad::test {
namespace {

void exchange_tensors(PostOffice& office) {
  const auto& self = office.fabric().self();
  std::fprintf(stderr, "%s is at %s\n", self.name.c_str(), self.addresses.at("tcp").c_str());
  const auto tensor = at::full({100'000}, self.rank.value + 0.5, at::kFloat);  // More than goes at once.
  for (const auto& member : office.fabric().members()) {
    if (member.rank == self.rank) continue;
    wire::Message letter;
    letter.tensors = {tensor};
    const auto answer = office.ask(member.rank, std::move(letter));
    if (!at::equal(answer.tensors.at(0), tensor)) throw Error("another tensor came back from " + member.name);
    const std::string way(office.fabric().transport_to(member.rank));
    std::printf("%s to %s: %s\n", self.name.c_str(), member.name.c_str(), way.c_str());
  }
}

}  // namespace
}  // namespace farad::test

int main() {
  try {
    farad::test::PostOffice office;
    farad::test::exchange_tensors(office);
    office.finish();
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
