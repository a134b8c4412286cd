"""The expressions that `tenon.fuse` passes to a function, and operations on them.

An expression is symbolic: it has a shape and an element type but no values. Arithmetic is done in f32 registers; a
result is rounded once, when it is stored. `tenon.round_to` and `Expr.cast` add further roundings.
"""

from __future__ import annotations

import math
import numbers
import threading
from collections.abc import Sequence
from typing import Any, Union

from . import _core, _dtypes
from ._checks import integer, real
from ._errors import UsageError

Number = Union[int, float]
Operand = Union["Expr", int, float]


class Expr:
    """A value in a function being traced: `shape`, `dtype`, Python's operators, NumPy's broadcasting."""

    __slots__ = ("_graph", "_value", "dtype")
    __array_ufunc__ = None  # NumPy leaves operators to this class

    def __init__(self, value: Any, graph: Any, dtype: str) -> None:
        self._value = value
        self._graph = graph
        self.dtype = dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, outermost first."""
        return self._value.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def _with(self, value: Any, dtype: str | None = None) -> Expr:
        return Expr(value, self._graph, self.dtype if dtype is None else dtype)

    def _view(self, node: str, **attributes: Any) -> Expr:
        return self._with(_make(node, [self._value], **attributes))

    def __add__(self, other: Operand) -> Expr:
        return _apply("add", (self, other))

    def __radd__(self, other: Operand) -> Expr:
        return _apply("add", (other, self))

    def __sub__(self, other: Operand) -> Expr:
        return _apply("sub", (self, other))

    def __rsub__(self, other: Operand) -> Expr:
        return _apply("sub", (other, self))

    def __mul__(self, other: Operand) -> Expr:
        return _apply("mul", (self, other))

    def __rmul__(self, other: Operand) -> Expr:
        return _apply("mul", (other, self))

    def __truediv__(self, other: Operand) -> Expr:
        return _apply("div", (self, other))

    def __rtruediv__(self, other: Operand) -> Expr:
        return _apply("div", (other, self))

    def __mod__(self, other: Operand) -> Expr:
        return _remainder(self, other)

    def __rmod__(self, other: Operand) -> Expr:
        return _remainder(other, self)

    def __floordiv__(self, other: Operand) -> Expr:
        return _floor_quotient(self, other)

    def __rfloordiv__(self, other: Operand) -> Expr:
        return _floor_quotient(other, self)

    def __pow__(self, exponent: Operand) -> Expr:
        if isinstance(exponent, (int, float)) and exponent == 2:
            return self * self
        return _apply("pow", (self, exponent))

    def __rpow__(self, base: Operand) -> Expr:
        return _apply("pow", (base, self))

    def __matmul__(self, other: Expr) -> Expr:
        return matmul(self, other)

    def __rmatmul__(self, other: Expr) -> Expr:
        return matmul(other, self)

    def __neg__(self) -> Expr:
        return _apply("neg", (self,))

    def __abs__(self) -> Expr:
        return _apply("abs", (self,))

    def __lt__(self, other: Operand) -> Expr:
        return _apply("less", (self, other), dtype="bool")

    def __gt__(self, other: Operand) -> Expr:
        return _apply("less", (other, self), dtype="bool")

    def __le__(self, other: Operand) -> Expr:
        return _either(self < other, self == other)

    def __ge__(self, other: Operand) -> Expr:
        return _either(self > other, self == other)

    def __eq__(self, other: Operand) -> Expr:  # type: ignore[override]
        return _apply("equal", (self, other), dtype="bool")

    def __ne__(self, other: Operand) -> Expr:  # type: ignore[override]
        return _apply("sub", (1.0, self == other), dtype="bool")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError("an expression has no truth value while it is traced; use tenon.where")

    def __float__(self) -> float:
        raise TypeError("an expression has no value while it is traced; compute what depends on it with expressions")

    __int__ = __index__ = __float__  # type: ignore[assignment]

    def __iter__(self) -> Any:
        raise TypeError("an expression cannot be iterated over; slice it: x[..., 0:1]")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a scalar expression has no length")
        return self.shape[0]

    def __getitem__(self, key: Any) -> Expr:
        return _index(self, key if isinstance(key, tuple) else (key,))

    def cast(self, dtype: Any) -> Expr:
        """Converted to `dtype`; if it is a result, stored as that type. How: tenon.cast."""
        name = _dtypes.name_of(dtype)
        value = self._value
        return self._with(value if value.dtype == name else _core.make("cast", [value], dtype=name), name)

    def reshape(self, *shape: Any) -> Expr:
        """The same elements in row-major order with another shape; one extent may be -1."""
        return reshape(self, shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)

    def permute(self, *axes: Any) -> Expr:
        """Axes reordered: axis i of the result is axis axes[i]."""
        return permute(self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes)

    @property
    def T(self) -> Expr:
        """The last two axes swapped."""
        if self.ndim < 2:
            raise UsageError(f"T: expected at least two axes, got shape {self.shape}", "T")
        return permute(self, (*range(self.ndim - 2), self.ndim - 1, self.ndim - 2))

    def __repr__(self) -> str:
        return f"Expr({self.dtype}{list(self.shape)})\n{self._value!r}"


class Tracer:
    """A function being traced, and the arrays that it uses besides its arguments: each becomes another input.
    Expressions find the tracer while it is entered."""

    _active = threading.local()

    def __init__(self, graph: Any, taken: Sequence[str]) -> None:
        self.graph = graph
        self.captured: list[tuple[str, Any]] = []
        self._taken = set(taken)
        self.leaves: dict[int, Expr] = {}  # of `captured`, by the array's identity

    def __enter__(self) -> Tracer:
        self._before = Tracer.current()
        Tracer._active.tracer = self
        return self

    def __exit__(self, *_: Any) -> None:
        Tracer._active.tracer = self._before

    @classmethod
    def current(cls) -> Tracer | None:
        """The innermost function that this thread is tracing."""
        return getattr(cls._active, "tracer", None)

    def capture(self, array: Any) -> Expr:
        """The array as an input of the function."""
        found = self.leaves.get(id(array))
        if found is not None:
            return found
        name = f"captured.{len(self.captured)}"
        while name in self._taken:
            name += "_"
        call = _core.Call("captured", [name], (array,))
        found = Expr(call.input(self.graph, 0), self.graph, call.dtype(0))
        self.captured.append((name, array))
        self.leaves[id(array)] = found
        return found


def _captured(operand: Any) -> Any:
    """An expression for an array that a traced function uses besides its arguments; anything else unchanged."""
    tracer = None if isinstance(operand, (Expr, numbers.Real)) else Tracer.current()
    return tracer.capture(operand) if tracer is not None and hasattr(operand, "__dlpack__") else operand


def _are_several(values: Any) -> bool:
    """Whether these are several values. NumPy's arrays have __iter__ also without an axis."""
    return hasattr(values, "__iter__") and getattr(values, "ndim", 1) > 0


def _integers(values: Any, name: str) -> list[int]:
    return [integer(v, name) for v in (values if _are_several(values) else (values,))]


def _make(
    node: str, operands: list[Any], ints: Sequence[int] = (), dims: Sequence[int] | None = None, **rest: Any
) -> Any:
    checked = {} if dims is None else {"dims": _integers(dims, node)}
    return _core.make(node, operands, ints=_integers(ints, node), **checked, **rest)


def _graph_of(operands: Sequence[Any], name: str) -> Any:
    for o in operands:
        if isinstance(o, Expr):
            return o._graph
    tracer = Tracer.current()
    if tracer is not None and any(hasattr(o, "__dlpack__") for o in operands):
        return tracer.graph
    raise TypeError(
        f"{name}: expected an expression, got {', '.join(type(o).__name__ for o in operands)}; "
        "tenon's operations are used inside a function that tenon.fuse traces"
    )


def _lift(operand: Any, graph: Any, name: str) -> Expr:
    operand = _captured(operand)
    if isinstance(operand, Expr):
        return operand
    if isinstance(operand, numbers.Real):
        return Expr(graph.constant(real(operand, name)), graph, "")
    raise TypeError(f"{name}: expected an expression or a number, got {type(operand).__name__}")


def _apply(
    name: str, operands: Sequence[Any], numbers: Sequence[float] = (), dtype: str | None = None, public: str = ""
) -> Expr:
    """The pointwise node `name`; errors about its operands call it `public`, if its function has another name."""
    graph = _graph_of(operands, public or name)
    lifted = [_lift(o, graph, public or name) for o in operands]
    if dtype is None:
        kinds = [o.dtype for o in lifted if o.dtype]
        dtype = _dtypes.promote(kinds) if kinds else ""  # plain numbers take the other operand's type
    return Expr(_core.make(name, [o._value for o in lifted], nums=list(numbers)), graph, dtype)


def _either(a: Expr, b: Expr) -> Expr:
    return _apply("max", (a, b), dtype="bool")


def _only(x: Any, name: str) -> Expr:
    x = _captured(x)
    _graph_of((x,), name)
    return x


def _truncated(a: Any, b: Any) -> tuple[Expr, Expr]:
    """a - trunc(a / b) b, exact, and whether its sign differs from b's."""
    rest = _apply("fmod", (a, b))
    signs = _apply("mul", (_apply("sign", (rest,)), _apply("sign", (_lift(b, rest._graph, "fmod"),))))
    return rest, signs < 0


def _remainder(a: Any, b: Any) -> Expr:
    """a - floor(a / b) b, with b's sign, as in Python and NumPy; exact."""
    rest, signs_differ = _truncated(a, b)
    square = rest * rest  # +0 where the rest is 0: adding to it gives its sign and keeps the gradient of the rest
    zero = _apply("where", (_lift(b, rest._graph, "mod") < 0, -(square - rest), square + rest))
    some = _apply("where", (signs_differ, rest + b, rest))
    return _apply("where", (rest == 0.0, zero, some), dtype=rest.dtype)


def _floor_quotient(a: Any, b: Any) -> Expr:
    """floor(a / b) of the exact quotient, as in NumPy: (a - fmod(a, b)) / b is whole up to rounding, and finite if b is
    infinite."""
    rest, signs_differ = _truncated(a, b)
    ratio = _apply("div", (a, b))
    toward_zero = _apply("div", (_apply("sub", (a, rest)), b))
    quotient = _apply("where", (signs_differ, toward_zero - 1, toward_zero))
    below = _apply("floor", (quotient,))
    near = _apply("where", (quotient - below > 0.5, below + 1, below))
    signed = _apply("where", (quotient == 0.0, ratio * 0.0, near))  # a zero takes the ratio's sign
    by_zero = _lift(b, rest._graph, "floor_divide") == 0.0
    return _apply("where", (by_zero, ratio, signed), dtype=rest.dtype)


def _axis(axis: Any, ndim: int, name: str) -> int:
    if not isinstance(axis, numbers.Integral):
        raise TypeError(f"{name}: axis: expected a whole number, got {type(axis).__name__}")
    at = int(axis) + ndim if axis < 0 else int(axis)
    if not 0 <= at < ndim:
        raise UsageError(f"{name}: axis {axis} is outside the {ndim} axes of its operand", name)
    return at


def _slice_of(key: slice, extent: int, axis: int) -> tuple[int, int]:
    if key.step not in (None, 1):
        raise UsageError(f"axis {axis}: expected a slice of step 1, got step {key.step}", "slice")
    begin, end, _ = key.indices(extent)
    return begin, max(begin, end)


def _index(x: Expr, key: tuple[Any, ...]) -> Expr:
    given = sum(k is not None and k is not Ellipsis for k in key)
    if given > x.ndim or sum(k is Ellipsis for k in key) > 1:
        raise IndexError(f"expected at most {x.ndim} indices and one ellipsis, got {key}")
    if not any(k is Ellipsis for k in key):
        key = (*key, Ellipsis)
    axis, shape = 0, []
    for k in key:
        if k is None:
            shape.append(1)
        elif k is Ellipsis:
            shape += x.shape[axis : axis + x.ndim - given]
            axis += x.ndim - given
        elif isinstance(k, slice):
            begin, end = _slice_of(k, x.shape[axis], axis)
            x = _part(x, axis, begin, end)
            shape.append(end - begin)
            axis += 1
        elif isinstance(k, numbers.Integral) and not isinstance(k, bool):  # NumPy adds an axis for True
            at = k + x.shape[axis] if k < 0 else k
            if not 0 <= at < x.shape[axis]:
                raise IndexError(f"index {k} is outside axis {axis} of extent {x.shape[axis]}")
            x = _part(x, axis, at, at + 1)
            axis += 1
        else:
            raise TypeError(f"expected slices, integers, None or ..., got {type(k).__name__}; tenon.gather picks rows")
    return reshape(x, shape)


def _part(x: Expr, axis: int, begin: int, end: int) -> Expr:
    return x if begin == 0 and end == x.shape[axis] else x._view("slice", ints=[axis, begin, end])


# ---- views --------------------------------------------------------------------------------------------------------


def reshape(x: Expr, shape: Sequence[int]) -> Expr:
    """The same elements in row-major order with another shape; one extent may be -1."""
    x = _only(x, "reshape")
    dims = _integers(shape, "reshape")
    if dims.count(-1) == 1:
        rest = math.prod(d for d in dims if d != -1)
        dims[dims.index(-1)] = math.prod(x.shape) // rest if rest else 0
    return x if tuple(dims) == x.shape else x._view("reshape", dims=dims)


def permute(x: Expr, axes: Sequence[int]) -> Expr:
    """Axes reordered: axis i of the result is axis axes[i] of x."""
    x = _only(x, "permute")
    order = [_axis(a, x.ndim, "permute") for a in axes]
    return x if order == list(range(x.ndim)) else x._view("permute", ints=order)


def broadcast_to(x: Expr, shape: Sequence[int]) -> Expr:
    """x broadcast to `shape` by NumPy's rules."""
    x = _only(x, "broadcast_to")
    dims = _integers(shape, "broadcast_to")
    return x if tuple(dims) == x.shape else x._view("broadcast", dims=dims)


def concat(parts: Sequence[Expr], axis: int = -1) -> Expr:
    """The expressions concatenated along `axis`. Parts of one type keep it; else the result is computed in f32."""
    parts = [_only(p, "concat") for p in parts]
    if not parts:
        raise UsageError("concat: expected at least one expression, got none", "concat")
    graph = _graph_of(parts, "concat")
    at = _axis(axis, parts[0].ndim, "concat")
    types = {p.dtype for p in parts}
    values = [p._value for p in parts]
    if len({v.dtype for v in values}) > 1:
        values = [v if v.dtype == "f32" else _core.make("cast", [v], dtype="f32") for v in values]
    joined = _core.make("concat", values, ints=[at])
    return Expr(joined, graph, types.pop() if len(types) == 1 else _dtypes.promote([p.dtype for p in parts]))


def pad(x: Expr, counts: Sequence[tuple[int, int]]) -> Expr:
    """x padded with zeros: a pair (before, after) per axis."""
    x = _only(x, "pad")
    pairs = counts if _are_several(counts) else (counts,)
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        raise UsageError(f"pad: expected a pair (before, after) for each axis, got {counts!r}", "pad")
    return x._view("pad", ints=[n for pair in counts for n in pair])


def gather(x: Expr, index: Expr) -> Expr:
    """Rows of x selected by an i32 or i64 expression: shape index.shape + x.shape[1:].

    An index outside x is a NumericError on the CPU; a GPU reads NaN there. x's gradient is a product with zeros and
    ones: a number in the result's gradient that is not finite can make any row NaN in its column.
    """
    x, index = _only(x, "gather"), _only(index, "gather")
    if x.ndim and not x.shape[0] and math.prod(index.shape):
        raise UsageError(f"gather: expected x to have rows to select, got shape {x.shape}", "gather")
    return x._with(_core.make("gather", [x._value, index._value]))


def resize_nearest(x: Expr, height: int, width: int) -> Expr:
    """Images [N, H, W, C] resized by nearest neighbour. The gradient is products with zeros and ones: a number in the
    result's gradient that is not finite can make its channel's whole image NaN."""
    return _only(x, "resize_nearest")._view("resize", ints=[height, width])


# ---- products -----------------------------------------------------------------------------------------------------


def _anchor(node: str, operands: Sequence[Expr], **attributes: Any) -> Expr:
    operands = [_only(o, node) for o in operands]
    graph = _graph_of(operands, node)
    value = _make(node, [o._value for o in operands], **attributes)
    return Expr(value, graph, _dtypes.promote([o.dtype for o in operands]))


def matmul(a: Expr, b: Expr) -> Expr:
    """a [.., M, K] times b [K, N], or b [.., K, N] with exactly a's leading axes, which are not broadcast; a may be [K]
    if b is [K, N]. Accumulates in f32; the result's type is that of the operands, f32 if they differ. UsageError for
    other shapes, and so for b of one axis: sum(a * b) is the product of two vectors."""
    a, b = _only(a, "matmul (@)"), _only(b, "matmul (@)")
    fits = a.ndim > 0 and b.ndim > 1 and a.shape[-1] == b.shape[-2]
    if not fits or (b.ndim > 2 and (a.ndim != b.ndim or a.shape[:-2] != b.shape[:-2])):
        raise UsageError(
            f"matmul (@): a {list(a.shape)} and b {list(b.shape)} do not fit: expected a [.., M, K] and b [K, N], or "
            "b [.., K, N] with a's leading axes",
            "matmul",
        )
    return _anchor("linear", (a, b.T))


def linear(x: Expr, weight: Expr, bias: Expr | None = None) -> Expr:
    """x [.., K] times the transpose of weight [N, K], plus bias [N]; accumulates in f32."""
    y = _anchor("linear", (x, weight))
    return y if bias is None else y + bias


def conv2d(x: Expr, weight: Expr, stride: int = 1, padding: int | Sequence[int] = 0) -> Expr:
    """Convolution of images x [N, H, W, C] with weight [O, C, kh, kw]; padding: one number, or top, left, bottom,
    right."""
    pads = padding if _are_several(padding) else [padding] * 4
    return _anchor("conv2d", (x, weight), ints=[stride, *pads])


def attention(q: Expr, k: Expr, v: Expr, scale: float | None = None, causal: bool = False) -> Expr:
    """softmax(scale q k^T) v per head: q [B, H, Sq, D], k and v [B, Hkv, Sk, D], result [B, H, Sq, D]. H is a multiple
    of Hkv: each head of k and v serves H / Hkv consecutive heads of q. scale: default 1/sqrt(D). causal: query i sees
    keys up to i + Sk - Sq, so that the last query sees all; needs Sk of at least Sq. UsageError for other shapes."""
    q, k, v = (_only(x, "attention") for x in (q, k, v))
    if k.ndim == v.ndim == 4 and k.shape[-1] != v.shape[-1]:
        raise UsageError(f"attention: expected k and v of one width, got {k.shape[-1]} and {v.shape[-1]}", "attention")
    width = q.shape[-1] if q.ndim else 0
    if scale is None:
        scale = 1.0 / math.sqrt(width) if width else 1.0
    return _anchor("attention", (q, k, v), ints=[int(causal)], nums=[real(scale, "attention")])
