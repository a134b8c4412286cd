// Turns a chain of views into affine pieces (see access.h). Internal to Access.
#pragma once
#include "tenon/backend/cpu/access.h"

namespace tenon::cpu {

/// The pieces of `view` over `domain`, or nothing if some part is not affine.
std::optional<std::vector<Piece>> affine_pieces(const Expr& view, const Shape& domain, int split, LeafTable& leaves);

}  // namespace tenon::cpu
