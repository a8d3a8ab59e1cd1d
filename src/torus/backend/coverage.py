"""Which ATen ops the device runs and how, told by the dispatcher that the rules have been registered with."""

from __future__ import annotations

import collections
import re
from typing import NamedTuple

import torch

from torus.backend import op_dtypes

KINDS = ("native", "decomposed", "fallback")
_COMPOSITE = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")

REASONS: tuple[tuple[str, str], ...] = (
    (
        r".*(quantize|quantized|q_scale|q_zero_point|q_per_channel|qint|_q_).*|int_repr|dequantize.*|qscheme",
        "quantized storage",
    ),
    (
        r".*(mkldnn|onednn|mkl_linear|xnnpack|nnpack|mps|cudnn|miopen|cufft|cslt|vulkan|metal).*",
        "a kernel of another library",
    ),
    (
        r".*(sparse|coalesce|_indices|_values|crow|ccol|row_indices|col_indices|spmm|spdiags|sspaddmm|_nnz|hspmm|sddmm).*",
        "sparse storage",
    ),
    (r".*(nested|jagged|padded_dense).*", "nested storage: `torch.jagged` tensors use the ops of their values"),
    (r"(linalg_)?eig|linalg_eigvals|_linalg_eigvals", "XLA has no eigenvalues of general matrices on accelerators"),
    (
        r".*(_for_cpu|_cpu|_packed|_pack|fbgemm|_weight_int[48]|dyn_quant|int4mm|int8mm).*",
        "a kernel for weights packed for one processor",
    ),
    (
        r".*(_thnn|_slow_conv|slow_conv|_conv_depthwise|conv_depthwise|thnn_conv).*",
        "a step of the CPU's convolution; the device has its own",
    ),
    (r".*(flash_attention|efficient_attention|fused_sdp).*", "the CPU's kernel of attention; the device has its own"),
    (
        r"to_mkldnn|_to_dense|from_file|_pin_memory|is_pinned|record_stream|_nnpack.*|_debug_.*|_assert.*|_print",
        "about host memory",
    ),
    (
        r"unique_dim.*",
        "how large the result is depends on values, which the host reads",
    ),
    (r"_add_relu_?", "what the CPU's graph optimizer makes of an addition and a relu"),
    (r"_fused_moving_avg_obs_fq_helper", "an observer of quantization"),
    (r"_dirichlet_grad", "XLA has no derivative of the incomplete beta function by its parameters"),
    (
        r"adaptive_avg_pool3d_backward",
        "a step of another op, which has a rule",
    ),
    (
        r"_foobar|_make_dep_token|_test_.*|_dimI|_dimV|_validate.*|_functional_.*|_fw_primal.*|_make_dual.*|_unpack_dual",
        "not an op of users",
    ),
)
"""Names (regular expressions that match whole ones) and why ops of these names have no rule."""


class Row(NamedTuple):
    """One op: its overloads by kind of `KINDS`, and why some of them fall back."""

    name: str
    overloads: dict[str, list[str]]
    reason: str

    @property
    def kind(self) -> str:
        """The least of the kinds of its overloads."""
        return next(kind for kind in reversed(KINDS) if kind in self.overloads)


def rows() -> list[Row]:
    """All ops of ATen that have a kernel for the CPU, or for every device, by name."""
    found: dict[str, dict[str, list[str]]] = collections.defaultdict(dict)
    for op in sorted(torch._C._dispatch_get_all_op_names()):
        kind = _kind(op)
        if op.startswith("aten::") and kind is not None:
            base, _, overload = op.removeprefix("aten::").partition(".")
            found[base].setdefault(kind, []).append(overload or "default")
    return [Row(name, overloads, _reason(name, overloads)) for name, overloads in sorted(found.items())]


def _kind(op: str) -> str | None:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if has(op, "PrivateUse1"):
        return "native"
    if any(has(op, key) for key in _COMPOSITE):
        return "decomposed"
    return "fallback" if has(op, "CPU") else None


def _reason(name: str, overloads: dict[str, list[str]]) -> str:
    if "fallback" not in overloads:
        return ""
    return next((reason for pattern, reason in REASONS if re.fullmatch(pattern, name)), "no rule yet")


def page() -> str:
    """The table as Markdown."""
    table, dtypes = rows(), op_dtypes.by_op()
    counts = collections.Counter(kind for row in table for kind, names in row.overloads.items() for _ in names)
    total = sum(counts.values())
    lines = [_HEAD.format(total=total, ops=len(table), **{k: counts[k] for k in KINDS})]
    lines += ["| op | dtypes | native | decomposed | fallback | why it falls back |", "|---|---|---|---|---|---|"]
    for row in table:
        cells = [", ".join(row.overloads.get(kind, [])) for kind in KINDS]
        tested = dtypes.get(row.name) or dtypes.get(row.name.removesuffix("_"), "")
        lines.append(f"| `{row.name}` | {tested} | {' | '.join(cells)} | {row.reason} |")
    return "\n".join(lines) + "\n"


_HEAD = """\
# Ops

Written by `torus ops --write docs/ops.md`; do not edit. It lists the ops of ATen that have a kernel for the CPU or for
every device, {ops} of them with {total} overloads, and says of each overload how the device runs it:

- **native** ({native}): one program, from a rule of its own or of its functional form;
- **decomposed** ({decomposed}): PyTorch writes it with other ops, each of which is in this table;
- **fallback** ({fallback}): on the CPU, with one warning and a counter (`torch.tpu.fallbacks()`).
  `TORUS_CPU_FALLBACK=error` forbids it.

An op takes the dtypes that it takes on the CPU, but for complex32, which XLA does not have. The dtypes of the table are
those of PyTorch's operator database, in which `make test-conformance` compares the op with the CPU (what it leaves out,
and why, is in `tests/conformance/exclusions.py`): *floating* is float64, float32, float16 and bfloat16, *complex* is
complex64 and complex128, *integral* is int8, int16, int32, int64 and uint8, *wide unsigned* is uint16, uint32 and
uint64, and *all* is the floating, complex and integral ones and bool. Without dtypes, the database has no entry of that
name, and the op is tested as a step of others.

A rule for an op that has none is a function of a few lines: see [rules](rules.md).
"""
