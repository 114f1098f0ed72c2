#pragma once

#include "autograd/ids.h"
#include "autograd/pass/message.h"
#include "base/status.h"
#include "wire/message.h"

namespace farad::autograd {

/// A message of a pass on the wire: the protocol's own part, and what contexts have to know of it.
struct PassMail {
  PassMessage message;
  bool living = false;    ///< its context, at the sender: otherwise it makes none where it arrives
  PairId pair;            ///< under create_graph: the first of the pairs that its answers make
  uint32_t recorded = 0;  ///< so many, one after the other: of each answer whose tensors can be differentiated

  size_t tensors() const;  ///< how many it speaks of
};

/// Several of them in one, of kind rpc::Kind::Above: each takes the next of the tensors, as many as it speaks of.
wire::Message encode(const std::vector<PassMail>& mails, std::vector<at::Tensor> tensors);
/// Protocol if this is none: also if they speak of more tensors than there are, or of fewer. Of one that was taken back
/// there is only the body: its tensors are not asked for then.
enum class MailHas { Tensors, NoTensors };
base::Status decode(const wire::Message& message, std::vector<PassMail>& mails, MailHas has = MailHas::Tensors);

/// The first byte of a body tells what it is.
enum class Mail : char {
  Pass = 1,
  News = 2,  ///< of contexts
  Vain = 3,  ///< of a function that was run again in vain: nobody is to keep what was recorded for it
};

}  // namespace farad::autograd
