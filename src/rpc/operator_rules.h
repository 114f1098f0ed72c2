#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace farad::rpc {

/// Which operators others may call by name. Unless a list says otherwise: every aten:: operator, but none whose name
/// begins with an underscore and none that touches files or storages.
///
/// A list has entries with commas between them: `my::op` allows that operator, whatever it is; `my::*` allows those of
/// that namespace, but for underscores, files and storages; `-aten::mul`, `-aten::*` and `-*` forbid. Of the entries
/// that fit an operator the last one counts. So "-*, aten::add" leaves nothing but aten::add.
class OperatorRules {
 public:
  /// Invalid, naming the entry, if `list` is none.
  static base::Status parse(std::string_view list, OperatorRules& out);

  /// Why `name` (without overload) may not be called; empty if it may.
  std::string refusal(std::string_view name) const;

 private:
  struct Entry {
    std::string name;  // Of a family: what its names begin with.
    bool family = false;
    bool allow = true;
    bool fits(std::string_view operator_name) const;
  };
  std::vector<Entry> entries_;
};

}  // namespace farad::rpc
