// What nodes refuse: one test for each error text.
#include <gtest/gtest.h>

#include "tenon/expr/precision.h"
#include "tenon/expr/vjp.h"
#include "tests/expr/samples.h"
#include "tests/support/refusing.h"

namespace tenon {
namespace {

class NodeError : public test::Refusing {
 protected:
  using Refusing::refused;
  template <class T>
  void refused(const std::string& text, std::vector<Expr> in, Attrs a = {}) {
    refused(text, [&] { g.make(node_type<T>(), in, a); });
  }
  static Attrs ints(std::vector<int64_t> v) {
    Attrs a;
    a.ints = std::move(v);
    return a;
  }
  static Attrs dims(Shape s) {
    Attrs a;
    a.dims = s;
    return a;
  }

  Graph g;
  Expr x = input(g, "x", DType::F32, {2, 3, 4});
  Expr image = input(g, "image", DType::F32, {1, 5, 5, 4});
};

TEST_F(NodeError, OperandFromAnotherGraph) {
  Graph other;
  const Expr y = input(other, "y", DType::BF16, {2});
  refused("[add] operand from another graph, or empty: add(f32[2,3,4], bf16[2])", [&] {
    g.make(node_type<nodes::Add>(), std::array{x, y});
  });
}
TEST_F(NodeError, EmptyOperand) {
  refused<nodes::Silu>("[silu] operand from another graph, or empty: silu(nothing)", {Expr()});
}
TEST_F(NodeError, EmptyExpressions) {
  const std::string text = "[expression] is empty: a default-constructed Expr has no value";
  for (const std::function<void()>& f : std::initializer_list<std::function<void()>>{
           [] { silu(Expr()); }, [&] { add(x, Expr()); }, [&] { linear(Expr(), x); }, [] { sum(Expr()); },
           [] { cast(Expr(), DType::BF16); }, [] { slice(Expr(), 0, 0, 1); },
           [] {
             concat({Expr(), Expr()}, -1);
           },
           [] { gradients(Expr(), {}, {}); }, [&] { gradients(x, {}, std::array{Expr()}); }})
    refused(text, f);
  refused("[attention_lse] expected an attention node, got nothing", [] { attention_lse(Expr()); });
  refused("[print] an empty expression has no text", [] { print(Expr()); });
}
TEST_F(NodeError, GradientWithRespectToAnotherGraph) {
  Graph other;
  const Expr y = input(other, "y", DType::BF16, {2});
  refused("[gradients] input<\"y\",bf16,[2],3>() is from another graph", [&] { gradients(x, {}, std::array{y}); });
}
TEST_F(NodeError, NumberOfOperands) { refused<nodes::Add>("[add] expected 2 operands, got add(f32[2,3,4])", {x}); }
TEST_F(NodeError, NoOperandsAtAll) {
  refused<nodes::Concat>("[concat] expected one or more operands, got concat()", {});
}
TEST_F(NodeError, NothingToQuantise) {
  refused("[quantize_rows] needs an operand", [] { quantize_rows(std::vector<Expr>()); });
}
TEST_F(NodeError, NumberOfParameters) { refused<nodes::Clamp>("[clamp] expected 2 parameters, got 0", {x}); }
TEST_F(NodeError, PointwiseOperandsThatDiffer) {
  refused<nodes::Add>("[pointwise] operands [2,3,4] and [1,5,5,4] differ", {x, image});
}
TEST_F(NodeError, OperandsThatDoNotBroadcast) {
  refused("[broadcast] shapes [2,3,4] and [1,5,5,4] do not broadcast", [&] { add(x, image); });
}
TEST_F(NodeError, BroadcastToAShapeThatDoesNotFit) {
  refused("[broadcast] cannot repeat [2,3,4] to [3,4]", [&] { broadcast(x, {3, 4}); });
}
TEST_F(NodeError, FlipOfNoAxis) {
  refused("[flip] axis 3 is outside [2,3,4]", [&] { flip(x, 3); });
  refused("[flip] axis -4 is outside [2,3,4]", [&] { flip(x, -4); });
  refused<nodes::Flip>("[flip] needs an axis inside [2,3,4]", {x});
}
TEST_F(NodeError, PairSwapOfAnOddAxis) {
  refused("[pair_swap] needs pairs along the last axis, got [2,3,3]", [&] { pair_swap(slice(x, 2, 0, 3)); });
  refused("[pair_swap] needs pairs along the last axis, got []", [&] { pair_swap(constant(g, 1)); });
}
TEST_F(NodeError, BroadcastWithoutAShape) { refused<nodes::Broadcast>("[broadcast] needs a shape", {x}); }
TEST_F(NodeError, CastWithoutAType) { refused<nodes::Cast>("[cast] needs an element type", {x}); }
TEST_F(NodeError, Rate) {
  Attrs a = dims({2});
  a.text = "y", a.dtype = DType::F32, a.ints = {7};
  refused<nodes::Input>("[input] rate 7 is outside 0..3", {}, a);
}
TEST_F(NodeError, LeafWithoutAName) {
  refused("[leaf] needs a name, an element type and a shape", [&] { input(g, "", DType::F32, {2}); });
}
TEST_F(NodeError, ConstantWithoutANumber) { refused<nodes::Constant>("[constant] needs one number", {}); }
TEST_F(NodeError, IotaOfHigherRank) { refused<nodes::Iota>("[iota] needs a shape of rank 1", {}, dims({2, 2})); }
TEST_F(NodeError, AnExtentTooLarge) {
  refused("[input] extent 562949953421312 exceeds 2^48", [&] { input(g, "y", DType::F32, {int64_t{1} << 49}); });
}
TEST_F(NodeError, TooManyElements) {
  refused(
      "[shape] [281474976710656,281474976710656] has more than 2^62 elements",
      [&] {
        input(g, "y", DType::F32, {int64_t{1} << 48, int64_t{1} << 48});
      },
      ErrorKind::Memory);
}
TEST_F(NodeError, MoreElementsThanBytesCanBeCounted) {
  refused(
      "[input] [281474976710656,512] has more than 2^56 elements",
      [&] {
        input(g, "y", DType::F64, {int64_t{1} << 48, 512});
      },
      ErrorKind::Memory);
}
TEST_F(NodeError, AttributesThatSumsOverflow) {
  const int64_t huge = int64_t{1} << 62;
  refused("[pad] attribute 4611686018427387904 exceeds 2^48", [&] { pad(x, 0, huge, huge); });
  const Expr w = param(g, "w", DType::F32, {2, 4, 3, 3});
  refused("[conv2d] attribute 4611686018427387904 exceeds 2^48", [&] { conv2d(image, w, 1, {huge, 0, huge, 0}); });
}
TEST_F(NodeError, AxesFromTheLast) {
  EXPECT_EQ(pad(x, -1, 1, 2), pad(x, 2, 1, 2));
  const auto total = [](const Expr& e) { return sum(e); };
  EXPECT_EQ(with_axis_last(x, -2, total), with_axis_last(x, 1, total));
  for (const int axis : {3, -4}) {
    const std::string outside = " axis " + std::to_string(axis) + " is outside [2,3,4]";
    refused("[pad]" + outside, [&] { pad(x, axis, 1, 2); });
    refused("[permute]" + outside, [&] { with_axis_last(x, axis, total); });
  }
}
TEST_F(NodeError, Reshape) {
  refused("[reshape] cannot view [2,3,4] as [5,5]", [&] { reshape(x, {5, 5}); });
}
TEST_F(NodeError, Permute) {
  for (const std::vector<int64_t>& axes : {std::vector<int64_t>{0, 1}, {0, 1, 1}, {0, 1, 3}, {-1, 0, 1}})
    refused("[permute] axes are not a permutation of the 3 axes of [2,3,4]", [&] { permute(x, axes); });
}
TEST_F(NodeError, Transpose) {
  refused("[transpose] needs two axes, got [3]", [&] { transpose(iota(g, 3)); });
}
TEST_F(NodeError, SliceAxis) {
  refused("[slice] axis 3 is outside [2,3,4]", [&] { slice(x, 3, 0, 1); });
  refused<nodes::Slice>("[slice] needs axis, begin and end, with the axis inside [2,3,4]", {x});
}
TEST_F(NodeError, SliceRange) {
  refused("[slice] range 2..5 is outside axis 1 of [2,3,4]", [&] { slice(x, 1, 2, 5); });
  refused("[slice] range 2..1 is outside axis 1 of [2,3,4]", [&] { slice(x, 1, 2, 1); });
}
TEST_F(NodeError, ConcatAxis) {
  refused("[concat] axis 3 is outside [2,3,4]", [&] { concat({x, x}, 3); });
  refused<nodes::Concat>("[concat] needs an axis inside [2,3,4]", {x, x});
}
TEST_F(NodeError, ConcatTypes) {
  refused("[concat] cannot join f32[2,3,4] and bf16[2,3,4]", [&] { concat({x, cast(x, DType::BF16)}, 0); });
}
TEST_F(NodeError, ConcatShapes) {
  refused("[concat] cannot join [2,3,4] and [2,2,4] along axis 2", [&] { concat({x, slice(x, 1, 0, 2)}, 2); });
}
TEST_F(NodeError, ConcatOfNothing) {
  refused("[concat] needs an operand", [&] { concat(std::span<const Expr>(), 0); });
}
TEST_F(NodeError, PadCounts) {
  refused("[pad] needs a low and a high count for each axis of [2,3,4]", [&] { pad(x, {1, 1}); });
}
TEST_F(NodeError, PadNegative) {
  refused("[pad] negative count on axis 2 of [2,3,4]", [&] { pad(x, {0, 0, 0, 0, 0, -1}); });
}
TEST_F(NodeError, Resize) {
  refused("[resize] needs [N,H,W,C] and a size, got [2,3,4]", [&] { resize_nearest(x, 4, 4); });
  refused("[resize] needs [N,H,W,C] and a size, got [1,5,5,4]", [&] { resize_nearest(image, 0, 4); });
}
TEST_F(NodeError, ResizeOfNothing) {
  refused("[resize] [1,0,5,4] has no pixels to repeat", [&] { resize_nearest(slice(image, 1, 0, 0), 4, 4); });
}
TEST_F(NodeError, GatherFromAScalar) {
  refused("[gather] x needs an axis to choose from", [&] { gather(constant(g, 1), iota(g, 2)); });
}
TEST_F(NodeError, GatherByAFloat) {
  refused("[gather] the index must be i32 or i64, got f32", [&] { gather(x, x); });
}
TEST_F(NodeError, ReduceAxisCode) {
  refused<nodes::Sum>("[reduce] needs one axis code: 0 for the last axis, 1 for the inner axes", {x}, ints({2}));
}
TEST_F(NodeError, ReduceAScalar) {
  refused("[reduce] a scalar has no axis to reduce", [&] { sum(constant(g, 1)); });
}
TEST_F(NodeError, ReduceWithoutInnerAxes) {
  refused("[reduce] needs axes between the first and the last, got [3]", [&] { sum(iota(g, 3), ReduceOver::Inner); });
}
TEST_F(NodeError, Linear) {
  refused("[linear] x [2,3,4] and w [1,5,5,4] do not fit: expected x [.., K], w [N, K]", [&] { linear(x, image); });
}
TEST_F(NodeError, ConvShapes) {
  refused("[conv2d] x [2,3,4] and w [1,5,5,4] do not fit: expected x [N,H,W,C], w [O,C,kh,kw]",
          [&] { conv2d(x, image); });
}
TEST_F(NodeError, ConvStride) {
  const Expr w = param(g, "w", DType::F32, {2, 4, 3, 3});
  refused("[conv2d] needs stride >= 1 and four paddings >= 0", [&] { conv2d(image, w, 0); });
  refused("[conv2d] needs stride >= 1 and four paddings >= 0", [&] { conv2d(image, w, 1, {0, 0, -1, 0}); });
}
TEST_F(NodeError, ConvKernelTooLarge) {
  const Expr w = param(g, "w", DType::F32, {2, 4, 7, 3});
  refused("[conv2d] image [1,5,5,4] is smaller than the kernel [2,4,7,3]", [&] { conv2d(image, w); });
}
TEST_F(NodeError, AttentionShapes) {
  refused("[attention] q [2,3,4], k [1,5,5,4], v [1,5,5,4] do not fit: expected q [B,H,Sq,D], k and v [B,Hkv,Sk,D]",
          [&] { attention(x, image, image, 1); });
  refused(  // no kernel has values of another width than keys
      "[attention] q [1,5,5,4], k [1,5,5,4], v [1,5,5,3] do not fit: expected q [B,H,Sq,D], k and v [B,Hkv,Sk,D]",
      [&] { attention(image, image, slice(image, 3, 0, 3), 1); });
}
TEST_F(NodeError, AttentionScale) {
  refused<nodes::Attention>("[attention] needs a scale and a causal flag", {image, image, image});
}
TEST_F(NodeError, AttentionCausalWithFewerKeys) {
  const Expr k = slice(image, 2, 0, 3);
  refused("[attention] causal attention needs at least as many keys as queries",
          [&] { attention(image, k, k, 1, true); });
}
TEST_F(NodeError, NumbersThatAreNoTypes) {
  const auto odd = static_cast<DType>(99);
  const std::string text = "[dtype] no element type has the number 99";
  refused(text, [&] { input(g, "odd", odd, {2}); });
  refused(text, [&] { param(g, "odd", odd, {2}); });
  refused(text, [&] { state(g, "odd", odd, {2}); });
  refused(text, [&] { scalar(g, "odd", odd); });
  refused(text, [&] { cast(x, odd); });
  refused(text, [&] { round(x, odd); });
  refused(text, [&] { multiplied_in(linear(x, x), odd); });
}

}  // namespace
}  // namespace tenon
