// The type that a model's networks compute in.
#pragma once
#include <string>
#include <string_view>

#include "tenon/plan/precision.h"

namespace tenon {

/// The type that networks compute in (`--type`): the type of weights and activations in memory, and a precision policy
/// for all networks. In this policy the rule `e4m3 rows` means those layers of a network that tolerate it according to
/// the network's own policy, and an exception may name a network ("text_encoder") instead of a part of weight names.
struct NetworkType {
  DType stored = DType::BF16;
  PrecisionPolicy policy = {};

  /// bf16, f16 and f32 apply to operands as well; e4m3 and i8 mean bf16 with linear layers in rows of that type.
  NetworkType(DType type);  // NOLINT(google-explicit-constructor): a type is the common choice
  /// Parses a type (bf16, f16, f32, e4m3 or int8, or other tools' spellings), optionally followed by exceptions as
  /// PrecisionPolicy::parse takes them: "e4m3, bf16: text_encoder". Throws Error(Usage) that names what was expected.
  static NetworkType parse(std::string_view text);
  /// The type of the policy's rule, as given to the constructor.
  DType name() const;
  /// Inverse of parse.
  std::string text() const;
};

}  // namespace tenon
