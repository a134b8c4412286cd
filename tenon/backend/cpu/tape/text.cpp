// A tape as text, one line per instruction, for TENON_DUMP.
#include <sstream>

#include "tenon/backend/cpu/tape/tape.h"

namespace tenon::cpu {

std::string Tape::text() const {
  std::ostringstream out;
  out << "tape over " << rows_ << " x " << cols_ << ", blocks of " << block_rows_ << " x " << block_cols_ << ", "
      << full_slots_ << " slots of rows, " << uniform_slots_ << " of single numbers\n";
  for (size_t at = 0; at < code_.size(); ++at) {
    const Instruction& in = code_[at];
    out << "  v" << in.dst << (values_[static_cast<size_t>(in.dst)].uniform ? " (one a row)" : "") << " = "
        << labels_[at];
    for (int i = 0; i < in.operands; ++i) out << (i ? ", v" : " v") << in.src[static_cast<size_t>(i)];
    out << "\n";
  }
  for (size_t at = 0; at < stores_.size(); ++at)
    out << "  store v" << stores_[at].value << " to " << destinations_[at] << "\n";
  return out.str();
}

}  // namespace tenon::cpu
