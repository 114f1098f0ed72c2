#include "rpc/operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <farad/detail/by_name.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <sstream>

#include "base/mutex.h"
#include "rpc/overload.h"

namespace farad::rpc {
namespace {

using c10::IValue;
using c10::OperatorHandle;
using Overloads = std::vector<OperatorHandle>;

/// Which overloads there are of a name: the dispatcher itself finds them only one by one. One for the process, as the
/// dispatcher is, and never destroyed, since operators come and go until the very end.
class OperatorIndex {
 public:
  static OperatorIndex& instance() {
    static auto* const index = new OperatorIndex;
    return *index;
  }

  /// In the order in which they were registered.
  Overloads find(const std::string& name) const {
    base::Lock lock(mutex_);
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? Overloads{} : found->second;
  }

  std::vector<std::string> names() const {
    base::Lock lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [name, overloads] : by_name_) names.push_back(name);
    return names;
  }

 private:
  // The dispatcher calls us under its lock, so we must not call it under ours.
  class Listener final : public c10::OpRegistrationListener {
   public:
    explicit Listener(OperatorIndex& index) : index_(index) {}
    void onOperatorRegistered(const OperatorHandle& op) override {
      base::Lock lock(index_.mutex_);
      index_.by_name_[op.operator_name().name].push_back(op);
    }
    void onOperatorDeregistered(const OperatorHandle& op) override {
      base::Lock lock(index_.mutex_);
      const auto found = index_.by_name_.find(op.operator_name().name);
      if (found == index_.by_name_.end()) return;
      std::erase_if(found->second, [&](const auto& each) { return each.operator_name() == op.operator_name(); });
      if (found->second.empty()) index_.by_name_.erase(found);
    }

   private:
    OperatorIndex& index_;
  };

  OperatorIndex()
      : listening_(c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Listener>(*this))) {}

  mutable base::Mutex mutex_;
  std::map<std::string, Overloads> by_name_ GUARDED_BY(mutex_);
  const c10::RegistrationHandleRAII listening_;  // Last: it fills the index at once.
};

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw detail::BadArguments("[rpc] operator \"" + name + "\": " + why);
}

/// How many letters to change, insert or drop to get from one to the other.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

std::string near_names(const OperatorRules& rules, std::string_view name) {
  constexpr size_t longest = 64;  // Of a name that somebody may have mistyped.
  constexpr size_t most_shown = 3;
  if (name.size() > longest) return {};
  std::vector<std::pair<size_t, std::string>> near;
  for (auto& other : OperatorIndex::instance().names()) {
    const size_t apart = distance(name, other);
    if (apart <= 2 && rules.refusal(other).empty()) near.emplace_back(apart, std::move(other));
  }
  std::ranges::sort(near);
  std::string text;
  for (size_t i = 0; i < std::min(near.size(), most_shown); ++i) text += (i == 0 ? "" : ", ") + near[i].second;
  return text;
}

[[noreturn]] void refuse_unknown(const OperatorRules& rules, const std::string& name, std::string_view base_name) {
  const auto near = near_names(rules, base_name);
  refuse(name, "there is none of that name here, nor has FARAD_REMOTE made a function known by it" +
                   (near.empty() ? std::string() : "; did you mean " + near + "?"));
}

[[noreturn]] void refuse_overload(const std::string& name, const Overloads& overloads) {
  std::string text;
  for (const auto& each : overloads) {
    const auto& overload = each.operator_name().overload_name;
    text += (text.empty() ? "" : ", ") + (overload.empty() ? "one without a name" : overload);
  }
  refuse(name, "there is no such overload; there are: " + text);
}

[[noreturn]] void refuse_arguments(const std::string& name, const Overloads& overloads,
                                   const std::vector<IValue>& arguments) {
  constexpr size_t most_shown = 8;
  std::ostringstream text;
  text << "no overload takes " << detail::kinds_of(arguments) << "; there are:";
  for (size_t i = 0; i < std::min(overloads.size(), most_shown); ++i) {
    text << "\n  " << overloads[i].schema() << "  (" << mismatch(overloads[i].schema(), arguments) << ")";
  }
  if (overloads.size() > most_shown) text << "\n  and " << overloads.size() - most_shown << " more";
  refuse(name, text.str());
}

bool is_out(const c10::Argument& argument) { return argument.is_out(); }

/// The overloads that `name` may mean.
Overloads candidates(const OperatorRules& rules, const std::string& name) {
  const size_t dot = name.find('.');
  const std::string base_name = name.substr(0, dot);
  auto overloads = OperatorIndex::instance().find(base_name);
  if (overloads.empty()) refuse_unknown(rules, name, base_name);
  if (const auto why = rules.refusal(base_name); !why.empty()) {
    refuse(name, "it may not be called from elsewhere: " + why + "; FARAD_OPERATORS, at the callee, can allow it");
  }
  if (dot != name.npos) {
    const auto all = overloads;
    std::erase_if(overloads, [overload = std::string_view(name).substr(dot + 1)](const auto& each) {
      return each.operator_name().overload_name != overload;
    });
    if (overloads.empty()) refuse_overload(name, all);
  } else {
    // What those write into is the callee's copy, so nobody means one who does not name it.
    std::erase_if(overloads, [](const auto& each) { return std::ranges::any_of(each.schema().arguments(), is_out); });
  }
  std::erase_if(overloads, [](const auto& each) { return !can_travel(each.schema()); });
  if (overloads.empty()) refuse(name, "it takes or gives what does not travel, such as a Storage or a Stream");
  return overloads;
}

}  // namespace

IValue run_operator(const OperatorRules& rules, const std::string& name, const std::vector<IValue>& arguments) {
  const auto overloads = candidates(rules, name);
  const OperatorHandle* chosen = nullptr;
  Match best;
  for (const auto& overload : overloads) {
    auto found = match(overload.schema(), arguments);
    if (found.fit >= best.fit) continue;
    best = std::move(found);
    chosen = &overload;
    if (best.fit == Fit::Exact) break;
  }
  if (!chosen) refuse_arguments(name, overloads, arguments);
  auto& stack = best.stack;
  chosen->callBoxed(stack);
  if (stack.empty()) return {};
  if (stack.size() == 1) return std::move(stack.front());
  return detail::make_tuple(std::move(stack));
}

}  // namespace farad::rpc
