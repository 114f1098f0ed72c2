#include "collectives/steps.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"

namespace farad::collectives {
namespace {

std::string text_of(const at::Tensor& tensor) {
  return tensor.defined() ? c10::str(tensor.scalar_type(), " ", tensor.sizes()) : "nothing";
}

}  // namespace

Steps::Steps(const Ticket& ticket, Signature signature, bool requires_grad)
    : ticket_(ticket),
      session_(*ticket.session()),
      alive_(session_.services().life().lock()),
      records_(c10::GradMode::is_enabled()),
      requires_grad_(requires_grad),
      signature_(std::move(signature)),
      without_shapes_(signature_) {
  without_shapes_.shapes.clear();
  for (int member = 0; member < members(); ++member) {
    if (member != rank()) others_.push_back(member);
  }
  reserve();
}

/// From here until the next wait nobody else is woken for what comes: it is waited for soon.
void Steps::reserve() {
  reservation_.reset();
  if (alive_) reservation_.emplace(session_.services().fabric.driver());
}

Session::Attendance Steps::begin(uint64_t which, const std::vector<int>& to, const std::vector<int>& from,
                                 const std::function<at::Tensor(int member)>& gives, Session::Chain chain) {
  const bool says_shapes = which == first_meeting || chain.round > 0;
  Session::Request request{ticket_.exchange(which), says_shapes ? signature_ : without_shapes_, {}, {}, to, from};
  request.chain = std::move(chain);
  request.records = records_;
  request.tensors.resize(static_cast<size_t>(members()));
  request.requires_grad.assign(static_cast<size_t>(members()), requires_grad_);
  for (const int member : to) request.tensors[static_cast<size_t>(member)] = passing(gives(member));
  return session_.attend(std::move(request));
}

Steps::Came Steps::finish(Session::Attendance& attendance) {
  auto outcome = attendance.wait();
  reserve();
  outcome.status.raise();
  return std::move(outcome.came);
}

at::Tensor Steps::taken(const Came& came, int member, const at::Tensor& expected) const {
  const auto found = came.find(member);
  const auto tensor = found == came.end() ? at::Tensor() : found->second.tensor;
  FARAD_CHECK(tensor.defined() && tensor.sizes() == expected.sizes() &&
                  tensor.scalar_type() == expected.scalar_type() && tensor.layout() == at::kStrided && tensor.is_cpu(),
              "[collectives] ", Meetings::text_of(signature_, ticket_.exchange(first_meeting)), " of ",
              to_text(session_.id()), ": ", session_.name_of(member), " sent ", text_of(tensor), " and not ",
              text_of(expected));
  return tensor;
}

void Steps::fail(uint64_t which, const std::vector<int>& members, const base::Status& why) {
  session_.say_failed(ticket_.exchange(which), members, why);
}

bool Steps::go_on(const Came& came, Op op) {
  if (!somebody_wants_a_gradient(came)) return true;
  if (op != Op::Sum && op != Op::Mean) return false;
  said_ = came;
  for (auto& [member, contribution] : said_) contribution.tensor.reset();
  return true;
}

bool Steps::somebody_wants_a_gradient(const Came& came) {
  for (const auto& [member, contribution] : came) requires_grad_ = requires_grad_ || contribution.requires_grad;
  return requires_grad_;
}

at::Tensor Steps::shaped(const at::Tensor& flat, const at::Tensor& like) {
  const at::AutoDispatchBelowADInplaceOrView no_view;
  return flat.view(like.sizes());
}

at::Tensor Steps::memory_for(const at::Tensor& like) const {
  auto memory = std::make_shared<at::DataPtr>(session_.services().results->allocate(like.nbytes()));
  return at::from_blob(memory->get(), like.sizes(), [memory](void*) mutable { memory.reset(); }, like.options());
}

at::Tensor piece_of(const at::Tensor& flat, int64_t piece, int64_t pieces) {
  // By the quotient and the rest, because the product of elements and pieces may be beyond all numbers.
  const int64_t each = flat.numel() / pieces, rest = flat.numel() % pieces;
  return flat.narrow(0, piece * each + std::min(piece, rest), each + (piece < rest ? 1 : 0));
}

at::Tensor flattened(const at::Tensor& input) { return input.detach().contiguous().view({-1}); }

}  // namespace farad::collectives
