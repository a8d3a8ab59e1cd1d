"""A plan as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torus.twin.planning import Plan


def to_json(plan: Plan) -> str:
    """Everything; bytes, FLOPs and seconds as numbers, per device."""
    return json.dumps(to_dict(plan), indent=2)


def to_dict(plan: Plan) -> dict[str, Any]:
    """The same as dictionaries and lists."""
    said, chip = plan.verdict, plan.topology.chip
    return {
        "name": plan.name,
        "step": plan.step,
        "batch": plan.batch,
        "sharding": plan.sharding,
        "topology": {
            "name": plan.topology.name,
            "chips": plan.topology.chips,
            "devices": plan.topology.devices,
            "mesh": plan.mesh,
            "chip": _plain(chip),
        },
        "verdict": {"fits": said.fits, "margin": said.margin, **asdict(said), "words": str(said)},
        "answers": [_plain(answer) for answer in plan.answers],
        "advice": [{**_plain(each), "helps": each.helps, "fits": each.fits} for each in plan.advice],
        "scaling": [_curve(curve) for curve in plan.scaling],
        "numerics": _plain(plan.numerics),
        "notes": list(plan.notes),
    }


def _curve(curve: Any) -> dict[str, Any]:
    points = [
        {
            "topology": p.topology.name,
            "chips": p.topology.chips,
            "devices": p.topology.devices,
            "mesh": p.mesh,
            "batch": p.batch,
            "seconds": p.estimate.roofline_seconds,
            "link_seconds": p.estimate.link_seconds,
            "hbm_peak": p.estimate.memory.peak,
            "fits": p.fits,
            "efficiency": p.efficiency,
            "efficiency_without_overlap": p.efficiency_without_overlap,
        }
        for p in curve.points
    ]
    return {"kind": curve.kind, "sharding": curve.sharding, "points": points, "note": curve.note}


def _plain(value: Any) -> Any:
    """What JSON has."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return dict(value) if hasattr(value, "keys") else str(value)
