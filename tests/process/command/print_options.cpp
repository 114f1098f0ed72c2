// Prints what WorkerOptions::from_environment() finds, one line per process: "rank size rendezvous".

#include <farad/options.h>

#include <exception>
#include <iostream>
#include <string>

int main() {
  try {
    const auto options = farad::WorkerOptions::from_environment();
    const auto line =
        std::to_string(options.rank) + ' ' + std::to_string(options.size) + ' ' + options.rendezvous + '\n';
    std::cout << line << std::flush;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
