"""Temporaries of compiled programs, from their HLO."""

from __future__ import annotations

import textwrap

import pytest

from torus.runtime.hlo_memory import temporary_bytes

KIB = "f32[256]{0}"


def module(body: str, more: str = "") -> str:
    """A module whose entry has the given lines, after others."""
    head = f"HloModule m, is_scheduled=true\n\n{textwrap.dedent(more)}\n"
    lines = textwrap.indent(textwrap.dedent(body).strip(), "  ")
    return f"{head}ENTRY %main (a: f32[256]) -> f32[256] {{\n  %a = {KIB} parameter(0)\n{lines}\n}}\n"


@pytest.mark.parametrize(
    ("body", "kib"),
    [
        pytest.param(f"ROOT %r = {KIB} negate(%a)", 0, id="a result is no temporary"),
        pytest.param(f"%x = {KIB} dot(%a, %a)\nROOT %r = {KIB} dot(%x, %a)", 1, id="one"),
        pytest.param(
            f"%x = {KIB} dot(%a, %a)\n%y = {KIB} dot(%x, %a)\n%z = {KIB} dot(%y, %a)\nROOT %r = {KIB} dot(%z, %a)",
            2,
            id="what is read last makes room afterwards",
        ),
        pytest.param(
            f"%x = {KIB} dot(%a, %a)\n%y = {KIB} fusion(%x), kind=kLoop, calls=%f\nROOT %r = {KIB} dot(%y, %a)",
            1,
            id="in place",
        ),
        pytest.param(
            f"%x = {KIB} dot(%a, %a)\n%y = f32[16,16]{{1,0}} bitcast(%x)\n%z = {KIB} dot(%a, %a)\n"
            f"ROOT %r = {KIB} dot(%y, %z)",
            2,
            id="another name",
        ),
        pytest.param(
            f"%s = ({KIB}, s32[256]{{0}}) sort(%a, %i), to_apply=%f\n%x = {KIB} get-tuple-element(%s), index=0\n"
            f"ROOT %r = {KIB} dot(%x, %a)",
            2,
            id="several results",
        ),
        pytest.param(
            f"%x = pred[256]{{0}} compare(%a, %a), direction=LT\n%y = bf16[256]{{0}} convert(%a)\n"
            f"%z = f8e4m3fn[256]{{0}} convert(%a)\nROOT %r = {KIB} custom-call(%x, %y, %z)",
            1,
            id="dtypes",
        ),
    ],
)
def test_what_is_alive_at_once(body: str, kib: int) -> None:
    assert temporary_bytes(module(body)) == kib * 1024


def test_a_loop_needs_what_its_body_needs() -> None:
    body = f"""
    %body (p: (s32[], f32[256])) -> (s32[], f32[256]) {{
      %p = (s32[], {KIB}) parameter(0)
      %i = s32[] get-tuple-element(%p), index=0
      %v = {KIB} get-tuple-element(%p), index=1
      %x = {KIB} dot(%v, %v)
      %y = {KIB} dot(%x, %v)
      ROOT %t = (s32[], {KIB}) tuple(%i, %y)
    }}
    """
    entry = f"""
    %c = s32[] constant(0)
    %v = {KIB} dot(%a, %a)
    %t = (s32[], {KIB}) tuple(%c, %v)
    %w = (s32[], {KIB}) while(%t), condition=%cond, body=%body
    %g = {KIB} get-tuple-element(%w), index=1
    ROOT %r = {KIB} dot(%g, %a)
    """
    assert temporary_bytes(module(entry, body)) == 2 * 1024


def test_a_library_writes_its_products_down() -> None:
    fused = f"""
    %fused (p: f32[256]) -> f32[] {{
      %p = {KIB} parameter(0)
      %x = {KIB} dot(%p, %p)
      %n = {KIB} negate(%x)
      ROOT %s = f32[] reduce(%n, %n), dimensions={{0}}, to_apply=%add
    }}
    """
    assert temporary_bytes(module("ROOT %r = f32[] fusion(%a), kind=kCustom, calls=%fused", fused)) == 1024
    assert temporary_bytes(module("ROOT %r = f32[] fusion(%a), kind=kLoop, calls=%fused", fused)) == 0


def test_what_is_no_hlo_has_none() -> None:
    assert temporary_bytes("") == 0
