"""Inputs from files: a row of a table, an image, messages."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torus.cli import CommandError


@dataclass(frozen=True)
class Table:
    """All rows of the chosen columns, float32, and the place of the one that is explained."""

    names: tuple[str, ...]
    rows: torch.Tensor
    place: int

    @property
    def row(self) -> torch.Tensor:
        """The explained row, (1, columns)."""
        return self.rows[self.place : self.place + 1]


def read_table(path: Path, row: int, columns: str | None = None) -> Table:
    """The table of a CSV file with a header; `row` counts from 1. Raises CommandError for what is no number."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        header, *lines = list(csv.reader(file)) or [[]]
    names = [name.strip() for name in columns.split(",")] if columns else header
    missing = [name for name in names if name not in header]
    if missing:
        raise CommandError(f"{path} has no column {missing[0]!r}; it has {', '.join(header)}")
    places = [header.index(name) for name in names]
    if not 1 <= row <= len(lines):
        raise CommandError(f"{path} has rows 1 to {len(lines)}, not {row}")
    rows = [[_number(path, number, line, place, header) for place in places] for number, line in enumerate(lines, 1)]
    return Table(tuple(names), torch.tensor(rows), row - 1)


def _number(path: Path, row: int, line: Sequence[str], place: int, header: Sequence[str]) -> float:
    try:
        return float(line[place])
    except (ValueError, IndexError):
        found = repr(line[place]) if place < len(line) else "nothing"
        raise CommandError(
            f"{path}, row {row}, column {header[place]!r}: {found} is no number; choose columns with --columns"
        ) from None


def read_image(path: Path, prepare: Any, size: int | None) -> torch.Tensor:
    """An image as the model takes it, (1, 3, h, w): prepared by what came with the model, or between 0 and 1."""
    pixels = _pixels(path)
    if size is not None:
        planes = pixels.permute(2, 0, 1)[None].float()
        scaled = torch.nn.functional.interpolate(planes, (size, size), mode="bilinear", antialias=True)
        pixels = scaled[0].round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0)
    if prepare is None:
        return (pixels.permute(2, 0, 1)[None] / 255).contiguous()
    if hasattr(prepare, "image_processor_type") or hasattr(prepare, "preprocess"):
        found = prepare(images=pixels.numpy(), return_tensors="pt")["pixel_values"]
    else:
        found = prepare(pixels)
    return found if found.ndim == 4 else found[None]


def _pixels(path: Path) -> torch.Tensor:
    """(h, w, 3), uint8."""
    try:
        import numpy as np
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise CommandError("--image needs Pillow: pip install pillow") from error
    try:
        with Image.open(path) as image:
            return torch.from_numpy(np.array(image.convert("RGB")))
    except UnidentifiedImageError as error:
        raise CommandError(f"{path} is no image that Pillow reads") from error


def read_chat(path: Path) -> list[dict[str, str]]:
    """Messages of a JSON file."""
    try:
        messages = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CommandError(f"{path} is no JSON: {error}") from error
    fits = isinstance(messages, list) and all(
        isinstance(message, dict) and {"role", "content"} <= message.keys() for message in messages
    )
    if not fits or not messages:
        raise CommandError(f'{path} is no chat; one is [{{"role": "user", "content": "..."}}, ...]')
    return messages
