#include "collectives/signature.h"

#include "wire/dtype.h"

namespace farad::collectives {
namespace {

const char* name_of(Operation operation) {
  switch (operation) {
    case Operation::AllReduce:
      return "all_reduce";
    case Operation::AllGather:
      return "all_gather";
    case Operation::AllGatherCat:
      return "all_gather_cat";
    case Operation::ReduceScatter:
      return "reduce_scatter";
    case Operation::AllToAll:
      return "all_to_all";
    case Operation::Broadcast:
      return "broadcast";
    case Operation::Reduce:
      return "reduce";
    case Operation::Gather:
      return "gather";
    case Operation::Scatter:
      return "scatter";
    case Operation::Send:
      return "send";
    case Operation::Recv:
      return "recv";
    case Operation::Shift:
      return "shift";
    case Operation::Barrier:
      return "barrier";
  }
  return "an operation that is none";
}

const char* name_of_number(Operation operation) {
  switch (operation) {
    case Operation::AllGatherCat:
      return "dim ";
    case Operation::Broadcast:
    case Operation::Reduce:
    case Operation::Gather:
    case Operation::Scatter:
      return "root ";
    case Operation::Send:
      return "to ";
    case Operation::Recv:
      return "from ";
    case Operation::Shift:
      return "by ";
    default:
      return nullptr;
  }
}

bool reduces(Operation operation) {
  return operation == Operation::AllReduce || operation == Operation::ReduceScatter || operation == Operation::Reduce;
}

const char* name_of_op(uint8_t op) {
  constexpr const char* names[] = {"Sum", "Mean", "Max", "Min", "Product"};
  return op < std::size(names) ? names[op] : "an Op that is none";
}

bool same_but_for(const std::vector<int64_t>& one, const std::vector<int64_t>& other, int64_t dim) {
  if (one.size() != other.size()) return false;
  for (size_t i = 0; i < one.size(); ++i) {
    if (one[i] != other[i] && static_cast<int64_t>(i) != dim) return false;
  }
  return true;
}

}  // namespace

std::string to_text(const Signature& signature) {
  std::string inside;
  const auto add = [&](const std::string& text) { inside += (inside.empty() ? "" : ", ") + text; };
  if (reduces(signature.operation)) add(name_of_op(signature.op));
  if (const char* what = name_of_number(signature.operation)) add(what + std::to_string(signature.number));
  if (signature.dtype != 0) {
    const char* dtype = wire::dtype_name(signature.dtype);
    std::string given = dtype ? dtype : "a dtype that is none";
    for (const auto& shape : signature.shapes) {
      std::string sizes;
      for (const auto size : shape) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
      given += " [" + sizes + "]";
    }
    add(given);
  }
  return std::string(signature.backward ? "backward of " : "") + name_of(signature.operation) + "(" + inside + ")";
}

bool agree(const Signature& one, const Signature& other) {
  if (one.backward || other.backward) return one.backward == other.backward;
  if (one.operation == Operation::Send || one.operation == Operation::Recv) {
    return other.operation == (one.operation == Operation::Send ? Operation::Recv : Operation::Send);
  }
  if (one.operation != other.operation || one.op != other.op || one.number != other.number) return false;
  if (one.dtype != 0 && other.dtype != 0 && one.dtype != other.dtype) return false;
  switch (one.operation) {
    case Operation::AllReduce:
    case Operation::ReduceScatter:
    case Operation::Reduce:
      return one.shapes == other.shapes;
    case Operation::AllGatherCat:
      // A letter of a foreign program may hold anything.
      return one.shapes.size() == 1 && other.shapes.size() == 1 &&
             same_but_for(one.shapes[0], other.shapes[0], one.number);
    default:
      return true;  // Each member's shapes are its own.
  }
}

}  // namespace farad::collectives
