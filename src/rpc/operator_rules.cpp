#include "rpc/operator_rules.h"

#include <algorithm>
#include <array>

namespace farad::rpc {
namespace {

constexpr std::string_view blanks = " \t";

// from_file would read any file of the callee. The others put one tensor's storage under another; those that take a
// Storage itself are told by their schema.
constexpr std::array<std::string_view, 4> hands_off{"aten::from_file", "aten::set", "aten::set_", "aten::set_data"};

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(blanks)));
  return text.substr(0, text.find_last_not_of(blanks) + 1);
}

/// Why a name is not one for everybody; empty if it is.
std::string concern(std::string_view name) {
  const size_t colons = name.find("::");
  if (colons != name.npos && name.substr(colons + 2).starts_with('_')) return "its name begins with an underscore";
  if (std::ranges::find(hands_off, name) != hands_off.end()) return "it touches files or storages";
  return {};
}

}  // namespace

bool OperatorRules::Entry::fits(std::string_view operator_name) const {
  return family ? operator_name.starts_with(name) : operator_name == name;
}

base::Status OperatorRules::parse(std::string_view list, OperatorRules& out) {
  out.entries_.clear();
  if (trimmed(list).empty()) return {};
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.size(), list.find(',', begin));
    const std::string_view text = trimmed(list.substr(begin, end - begin));
    begin = end + 1;
    std::string_view name = text;
    Entry entry;
    if (name.starts_with('-')) {
      entry.allow = false;
      name.remove_prefix(1);
    }
    if (name.ends_with('*')) {
      entry.family = true;
      name.remove_suffix(1);
    }
    const bool everything = entry.family && name.empty() && !entry.allow;
    const size_t colons = name.find("::");
    const bool has_name = entry.family ? colons + 2 == name.size() : colons + 2 < name.size();
    if (!everything && (colons == 0 || colons == name.npos || !has_name || name.find_first_of("*-. ") != name.npos)) {
      return {base::Code::Invalid,
              "[rpc] FARAD_OPERATORS: \"" + std::string(text) +
                  "\" names no operators: write my::op or my::*, to forbid them -my::op, -my::* or "
                  "-* (all), with commas between them"};
    }
    entry.name = name;
    out.entries_.push_back(std::move(entry));
  }
  return {};
}

std::string OperatorRules::refusal(std::string_view name) const {
  std::string why = concern(name);
  if (why.empty() && !name.starts_with("aten::")) why = "it is not one of aten::";
  for (const Entry& entry : entries_) {
    if (!entry.fits(name)) continue;
    if (!entry.allow) {
      why = "FARAD_OPERATORS forbids it";
    } else {
      why = entry.family ? concern(name) : std::string();
    }
  }
  return why;
}

}  // namespace farad::rpc
