#include "run/line_merger.h"

namespace farad::run {

LineMerger::LineMerger(Output& output, int workers, bool tagged, bool coloured)
    : output_(output), tagged_(tagged), partial_(static_cast<size_t>(workers)) {
  for (int rank = 0; tagged && rank < workers; ++rank) tags_.push_back(tag_of(rank, workers, coloured));
}

std::string LineMerger::tag_of(int rank, int workers, bool coloured) const {
  const auto number = std::to_string(rank);
  const size_t width = std::to_string(workers - 1).size();
  const std::string tag = std::string(width - number.size(), ' ') + '[' + number + ']';
  if (!coloured) return tag + ' ';
  // The six colours between black and white, which every terminal has.
  return "\x1b[3" + std::to_string(1 + rank % 6) + 'm' + tag + "\x1b[0m ";
}

void LineMerger::take(int rank, std::string_view bytes) {
  auto& partial = partial_[static_cast<size_t>(rank)];
  const auto last = bytes.rfind('\n');
  if (last != bytes.npos) {
    auto lines = bytes.substr(0, last + 1);
    bytes.remove_prefix(last + 1);
    if (!partial.empty()) {
      const auto first = lines.find('\n') + 1;
      partial += lines.substr(0, first);
      lines.remove_prefix(first);
      flush(rank);
    }
    emit(rank, lines);
  }
  partial += bytes;
  if (partial.size() > longest_kept) flush(rank);
}

void LineMerger::flush(int rank) {
  auto& partial = partial_[static_cast<size_t>(rank)];
  emit(rank, partial);
  partial.clear();
}

void LineMerger::end(int rank) {
  flush(rank);
  if (open_ == rank) break_open_line();
}

void LineMerger::note(std::string_view line) {
  break_open_line();
  output_.put(line);
  output_.put("\n");
}

void LineMerger::break_open_line() {
  if (open_ != nobody && tagged_) output_.put("\n");
  open_ = nobody;
}

void LineMerger::emit(int rank, std::string_view piece) {
  if (piece.empty()) return;
  if (!tagged_) {
    output_.put(piece);
    return;
  }
  if (open_ != rank) break_open_line();
  while (!piece.empty()) {
    if (open_ != rank) output_.put(tags_[static_cast<size_t>(rank)]);
    const auto newline = piece.find('\n');
    const auto line = piece.substr(0, newline == piece.npos ? newline : newline + 1);
    output_.put(line);
    open_ = newline == piece.npos ? rank : nobody;
    piece.remove_prefix(line.size());
  }
}

}  // namespace farad::run
