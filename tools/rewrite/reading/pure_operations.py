"""Which operations of torch, and which functions of Python, make nothing but a value from their arguments.

A name that is not listed is not known to be pure. Nothing random, nothing uninitialised, nothing whose result has a
size that depends on values.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FACTORIES = _words("""
    arange full ones zeros eye linspace logspace tensor as_tensor tril_indices triu_indices scalar_tensor
""")
# pure both as torch.f(x) and as x.f()
PURE = _words("""
    abs add argsort bitwise_and bitwise_not bitwise_or bool broadcast_to cat ceil chunk clamp clone concat
    contiguous cos cosh cumsum deg2rad diag diagonal div double einsum eq exp exp2 expand expand_as flatten flip
    float floor floor_divide fmod gather ge gt half index_select int le log log10 log2 logical_and logical_not
    logical_or long lt masked_fill matmul max maximum mean meshgrid min minimum mul narrow ne neg ones_like outer
    permute pow prod reciprocal remainder repeat repeat_interleave reshape roll round rsqrt sigmoid sign sin sinh
    softmax split sqrt square squeeze stack sub sum swapaxes t tan tanh to transpose tril triu type type_as unbind
    unflatten unsqueeze view view_as where zeros_like full_like bfloat16
""")
# in-place operations that are fine on a tensor made in the same place
PURE_IN_PLACE = _words("""
    add_ sub_ mul_ div_ pow_ triu_ tril_ masked_fill_ fill_ cos_ sin_ exp_ neg_ zero_
""")
PLAIN_FUNCTIONS = _words("""
    int float bool abs min max round len sum range slice tuple pow divmod
""")
TENSOR_FACTS = frozenset(["shape", "dtype", "device", "ndim"])
FINFO = frozenset(["min", "max", "eps", "tiny", "smallest_normal", "bits"])
_TORCH_VALUES = """
    float32 float float64 double float16 half bfloat16 int8 int16 short int32 int int64 long uint8 bool pi inf e
    strided contiguous_format preserve_format channels_last
"""
# attributes of modules that are plain values
CONSTANTS = _words(" ".join(f"torch.{name}" for name in _TORCH_VALUES.split())) | _words(
    "math.pi math.e math.inf math.tau math.nan"
)
