"""What the functions made from the engine's nodes compute, for `help` and `inspect.signature`: names of their operands
and numbers, and the meaning. A node without an entry gets operand names a, b, .. and a test fails that asks for one."""

from __future__ import annotations

import textwrap

# By public name: operands, then numbers, separated by spaces; the meaning.
POINTWISE: dict[str, tuple[str, str]] = {
    "abs": ("x", "|x|; its gradient is 0 at 0."),
    "add": ("a b", "a + b, as the operator does."),
    "barrier": ("x stage", "x, stored in memory, after all that is behind barriers of lower stages (0, 1, ..)."),
    "ceil": ("x", "The smallest whole number not below x; gradient 0."),
    "clamp": ("x lo hi", "lo where x < lo, else hi where x > hi, else x, also if lo > hi; NaN stays NaN."),
    "cos": ("x", "Cosine of x in radians."),
    "div": ("a b", "a / b, as the operator does."),
    "equal": ("a b", "True where a == b."),
    "erf": ("x", "The error function."),
    "exp": ("x", "e to the power x."),
    "floor": ("x", "The largest whole number not above x; gradient 0."),
    "fma": ("a b c", "a * b + c, rounded once."),
    "fmod": ("a b", "a - trunc(a / b) * b, exact, of the sign of a (% has that of b); NaN where b is 0."),
    "gelu": ("x", "x / 2 * (1 + erf(x / sqrt(2))), the exact form."),
    "gelu_tanh": ("x", "x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))), GELU's usual approximation."),
    "leaky_relu": ("x slope", "x, or slope * x where x < 0."),
    "lerp": ("a b t", "a + t * (b - a)."),
    "less": ("a b", "True where a < b."),
    "log": ("x", "Natural logarithm."),
    "materialize": ("x", "x, stored in memory by the launch that computes it: nothing is fused across it."),
    "maximum": ("a b", "The larger operand; NaN if either is NaN. At ties the gradient goes to a."),
    "minimum": ("a b", "The smaller operand; NaN if either is NaN. At ties the gradient goes to a."),
    "mul": ("a b", "a * b, as the operator does."),
    "neg": ("x", "-x, as the operator does."),
    "pow": ("a b", "a to the power b, as C's pow; the gradient of a is 0 where b is 0, that of b where a is 0."),
    "quick_gelu": ("x", "x * sigmoid(1.702 * x), a cheap approximation of GELU."),
    "relu": ("x", "The larger of x and 0; its gradient is 0 at 0."),
    "rsqrt": ("x", "1 / sqrt(x)."),
    "sigmoid": ("x", "1 / (1 + exp(-x))."),
    "sign": ("x", "-1, 0 or 1; 0 at 0 and -0, NaN at NaN; gradient 0."),
    "silu": ("x", "x * sigmoid(x)."),
    "sin": ("x", "Sine of x in radians."),
    "sqrt": ("x", "Square root; NaN where x < 0."),
    "stop_gradient": ("x", "x, through which no gradient flows."),
    "sub": ("a b", "a - b, as the operator does."),
    "tanh": ("x", "Hyperbolic tangent."),
    "where": ("condition a b", "a where condition is not 0, else b."),
}

REDUCTIONS: dict[str, str] = {
    "absmax": "The largest absolute value; NaN if any element is NaN. Ties share the gradient.",
    "max": "The largest element; NaN if any is NaN. Ties share the gradient. (Of two expressions: maximum.)",
    "mean": "The arithmetic mean.",
    "sum": "The sum.",
    "sumsq": "The sum of the squares.",
    "variance": "The mean squared deviation from the mean: divided by the number of elements n, not n - 1.",
}

_TYPE = "the type of the floating-point operands, or f32 if these differ or there are none (e4m3 counts as none)"


def _wrapped(meaning: str, rest: str) -> str:
    return f"{meaning}\n\n{textwrap.fill(rest, 100)}"


def pointwise(name: str, operands: int, numbers: int) -> tuple[list[str], str]:
    """Names of the arguments, and the docstring."""
    names, meaning = POINTWISE.get(name, (" ".join("abcdefgh"[: operands + numbers]), f"The engine's node {name!r}."))
    arguments = names.split()
    result = _TYPE if name != "where" else _TYPE.replace("the floating-point operands", "a and b")
    if name in ("less", "equal"):
        result = "the type bool"
    takes = "Operands are expressions, captured arrays or numbers, broadcast as in NumPy"
    if numbers:
        takes += f"; {' and '.join(arguments[operands:])}: Python number{'s' if numbers > 1 else ''}"
    return arguments, _wrapped(meaning, f"{takes}. The result has {result}.")


def reduction(name: str) -> str:
    """The docstring."""
    meaning = REDUCTIONS.get(name, f"The engine's reduction {name!r}.")
    rest = (
        "Over one axis, several, or with axis=None all; with keepdim they stay, with extent 1. Computes in f32; the "
        "result has x's type, or f32 if that is e4m3, an integer or bool. UsageError if there is nothing to reduce."
    )
    if "Ties" in meaning:
        rest += (
            " Ties have equal shares, but of more than 2^18 elements, which are reduced in equal parts where they can "
            "be, first the parts with ties share equally, then the ties within each."
        )
    return _wrapped(meaning, rest)
