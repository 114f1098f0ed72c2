#include "base/environment.h"

#include <charconv>
#include <cstdlib>
#include <limits>
#include <utility>
#include <vector>

namespace farad::base {
namespace {

std::vector<std::string_view> split(std::string_view words) {
  std::vector<std::string_view> result;
  for (size_t bar = words.find('|'); bar != words.npos; bar = words.find('|')) {
    result.push_back(words.substr(0, bar));
    words.remove_prefix(bar + 1);
  }
  result.push_back(words);
  return result;
}

/// How often to multiply by 1024 for what follows the digits of a Bytes value, or -1.
int thousands(std::string_view suffix) {
  if (suffix.empty()) return 0;
  const size_t power = std::string_view("KMGT").find(suffix.front());
  const auto rest = suffix.substr(1);
  if (power == std::string_view::npos || !(rest.empty() || rest == "iB")) return -1;
  return static_cast<int>(power) + 1;
}

std::optional<int64_t> parse(const Variable& row, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;

  const auto suffix = text.substr(static_cast<size_t>(end - text.data()));
  const int power = row.kind == Kind::Bytes ? thousands(suffix) : (suffix.empty() ? 0 : -1);
  if (power < 0) return std::nullopt;
  for (int i = 0; i < power; ++i) {
    if (value < 0 || value > std::numeric_limits<int64_t>::max() / 1024) return std::nullopt;
    value *= 1024;
  }
  if (value < row.least || value > row.most) return std::nullopt;
  return value;
}

bool is_number(Kind kind) {
  return kind == Kind::Whole || kind == Kind::Milliseconds || kind == Kind::Microseconds || kind == Kind::Bytes;
}

bool fits(const Variable& row, std::string_view text) {
  if (is_number(row.kind)) return parse(row, text).has_value();
  if (row.kind != Kind::Choice) return true;
  for (const auto word : split(row.words)) {
    if (word == text) return true;
  }
  return false;
}

Status malformed(const Variable& row, std::string_view text) {
  return {Code::Invalid, "[environment] " + std::string(row.name) + "=\"" + std::string(text) + "\": expected " +
                             expectation(row) + ", or unset it"};
}

}  // namespace

std::string expectation(const Variable& row) {
  const auto range = [&row] {
    if (row.most == std::numeric_limits<int64_t>::max()) return " of at least " + std::to_string(row.least);
    return " from " + std::to_string(row.least) + " to " + std::to_string(row.most);
  };
  switch (row.kind) {
    case Kind::Text:
      return "text";
    case Kind::Secret:
      return "a secret";
    case Kind::Whole:
      return "a whole number" + range();
    case Kind::Milliseconds:
      return "a whole number of milliseconds" + range();
    case Kind::Microseconds:
      return "a whole number of microseconds" + range();
    case Kind::Bytes:
      return "a number of bytes" + range() + ", such as 4096, 64M or 2G";
    case Kind::Choice:
      break;
  }
  std::string words;
  const auto choices = split(row.words);
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) words += i + 1 == choices.size() ? " or " : ", ";
    words += choices[i];
  }
  return words;
}

Environment Environment::process() {
  return Environment(Lookup([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value ? std::optional<std::string>(value) : std::nullopt;
  }));
}

Environment Environment::of(Values values) {
  return Environment(Lookup([values = std::move(values)](const char* name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional<std::string>(found->second);
  }));
}

bool Environment::has(Var var) const {
  const auto value = lookup_(variable(var).name);
  return value && !value->empty();
}

std::optional<std::string> Environment::text(Var var) const {
  const auto& row = variable(var);
  auto value = lookup_(row.name);
  if (value && !value->empty()) return value;
  if (*row.fallback) return row.fallback;
  return std::nullopt;
}

Status Environment::read(Var var, int64_t& out) const {
  const auto value = text(var);
  if (!value) return {};
  const auto number = parse(variable(var), *value);
  if (!number) return malformed(variable(var), *value);
  out = *number;
  return {};
}

Status Environment::read(Var var, std::string& out) const {
  auto value = text(var);
  if (!value) return {};
  if (!fits(variable(var), *value)) return malformed(variable(var), *value);
  out = std::move(*value);
  return {};
}

Status Environment::check(Var var) const {
  const auto value = text(var);
  if (!value || fits(variable(var), *value)) return {};
  return malformed(variable(var), *value);
}

}  // namespace farad::base
