#include <farad/error.h>
#include <farad/future.h>
#include <farad/version.h>

#include <iostream>

int main() {
  farad::Promise<int> promise;
  auto doubled = promise.future().then([](int value) { return 2 * value; });
  promise.set_value(21);
  auto dropped = farad::Promise<int>().future();
  try {
    dropped.wait();
    return 1;
  } catch (const farad::Cancelled&) {
    std::cout << "farad " << FARAD_VERSION << ": " << doubled.wait() << '\n';
  }
}
