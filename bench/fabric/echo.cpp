#include <ATen/ops/ones.h>

#include <iostream>

#include "common/sample.h"
#include "fabric/pair.h"
#include "fabric/roles.h"

namespace farad::bench {

using namespace std::chrono_literals;

void echo_client(const Words& words) {
  std::shared_ptr<net::Waiter> waiter;
  wire::Message answer;
  Pair pair(0, words[0], words[1], [&](wire::Message&& message) {
    answer = std::move(message);
    waiter->complete();
  });
  nlohmann::json result;
  for (size_t i = 2; i < words.size(); ++i) {
    const auto tensor = at::ones({static_cast<int64_t>(std::stoull(words[i]) / sizeof(float))});
    result[words[i]] = time_each(
        [&] {
          waiter = pair.driver().make_waiter();
          wire::Message message;
          message.tensors = {tensor};
          net::Driver::Reservation reservation(pair.driver());
          pair.send(std::move(message));
          pair.driver().wait(*waiter, base::never);
          answer = {};
        },
        400ms);
  }
  std::cout << result << std::endl;
}

void echo_server(const Words& words) {
  Pair* self = nullptr;
  Pair pair(1, words[0], words[1], [&](wire::Message&& message) { self->post(std::move(message)); });
  self = &pair;
  pair.wait_until_lost();
}

}  // namespace farad::bench
