#include <farad/debug.h>

#include <ostream>

namespace farad {
namespace {

void list(std::ostream& out, const char* what, const std::vector<Debug::Call>& calls) {
  out << what << ": " << calls.size() << '\n';
  for (const auto& call : calls) {
    out << "  \"" << call.function << "\" " << call.peer << ", " << call.age.count() << " ms\n";
  }
}

void list(std::ostream& out, const char* what, const std::vector<Debug::Reference>& references) {
  out << what << ": " << references.size() << '\n';
  for (const auto& reference : references) {
    out << "  " << reference.id << " at " << reference.owner << ", " << reference.origin;
    const char* before = "; held by ";
    for (const auto& holder : reference.holders) {
      out << before << holder;
      before = ", ";
    }
    out << '\n';
  }
}

void show(std::ostream& out, const Debug::Pass& pass) {
  out << "    pass " << pass.number << " of " << pass.root << ": " << pass.state << ", " << pass.fired << " of "
      << pass.nodes << " nodes fired, " << pass.running << " running";
  const char* before = "; waits for ";
  for (const auto& worker : pass.waits_for) {
    out << before << worker;
    before = ", ";
  }
  out << '\n';
}

void list(std::ostream& out, const char* what, const std::vector<Debug::Context>& contexts) {
  out << what << ": " << contexts.size() << '\n';
  for (const auto& context : contexts) {
    out << "  " << context.id << ": " << context.sends << " sends, " << context.recvs << " recvs, "
        << context.passes.size() << " passes\n";
    for (const auto& pass : context.passes) show(out, pass);
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Debug& debug) {
  list(out, "calls made", debug.made);
  list(out, "calls running here", debug.running);
  list(out, "values owned", debug.owned);
  list(out, "references held", debug.held);
  list(out, "references lent", debug.lent);
  list(out, "contexts", debug.contexts);
  return out << "unsettled: " << debug.unsettled << '\n';
}

}  // namespace farad
