#pragma once

#include <string>
#include <vector>

namespace farad::test {

/// Two machines and a cable between them, as far as workers can tell: two network namespaces, each with a loopback and
/// an address of its own, joined by a pair of virtual interfaces. Each has another network besides, the first in its
/// list, where nobody else is. They are gone when this is, and also when the process ends without destroying it.
class Machines {
 public:
  static constexpr const char* first_address = "10.213.0.1";
  static constexpr const char* second_address = "10.213.0.2";
  static constexpr const char* private_address = "192.168.213.1";  ///< of either, in the network of its own

  Machines();
  ~Machines();
  Machines(const Machines&) = delete;

  /// Empty if they are there, else what is missing for it: root, the ip command, or a kernel that lets us.
  const std::string& trouble() const { return trouble_; }

  /// The command line that runs a program on one of them.
  std::vector<std::string> on_first(std::vector<std::string> program) const { return inside(first_, program); }
  std::vector<std::string> on_second(std::vector<std::string> program) const { return inside(second_, program); }

 private:
  static std::vector<std::string> inside(const std::string& name, const std::vector<std::string>& program);

  const std::string first_;
  const std::string second_;
  std::string trouble_;
  int undertaker_ = -1;  // Whoever reads its other end removes them when we are gone.
};

}  // namespace farad::test
