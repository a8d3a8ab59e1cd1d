"""Images and maps over them as PNG, written here: a report needs no imaging library, and no file beside it."""

from __future__ import annotations

import base64
import struct
import zlib

import torch

from torus.explain.report.colours import NEGATIVE, POSITIVE

DEEPEST = 0.85


def png(pixels: torch.Tensor) -> bytes:
    """A PNG file of uint8 pixels (h, w, 3) or (h, w, 4)."""
    height, width, channels = pixels.shape
    kind = {3: 2, 4: 6}[channels]
    rows = torch.cat([torch.zeros(height, 1, dtype=torch.uint8), pixels.reshape(height, -1).cpu()], dim=1)
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    data = zlib.compress(rows.contiguous().numpy().tobytes(), 6)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def data_uri(pixels: torch.Tensor) -> str:
    """The same as a source for an image in HTML or SVG."""
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode()


def shown(image: torch.Tensor) -> torch.Tensor:
    """An input (c, h, w) as pixels (h, w, 3): its own range becomes black to white; other than 3 channels, grey."""
    image = image.detach().to("cpu", torch.float32)
    if len(image) != 3:
        image = image.mean(0, keepdim=True).expand(3, -1, -1)
    finite = image.nan_to_num()
    low, high = finite.min(), finite.max()
    scaled = (finite - low) / (high - low).clamp_min(1e-12)
    return (scaled * 255).round().to(torch.uint8).permute(1, 2, 0)


def overlay(scores: torch.Tensor) -> torch.Tensor:
    """A map (h, w) as transparent colours (h, w, 4); the top percent share the deepest: a spot would hide the rest."""
    scores = scores.detach().to("cpu", torch.float32).nan_to_num()
    size = scores.abs()
    largest = max(float(size.flatten().quantile(0.99)), float(size.max()) / 20) or 1.0
    alpha = (size / largest).clamp(max=1) * DEEPEST
    positive = (scores >= 0).unsqueeze(-1)
    colour = torch.where(positive, torch.tensor(POSITIVE), torch.tensor(NEGATIVE))
    return torch.cat([colour, (alpha.unsqueeze(-1) * 255).round()], dim=-1).to(torch.uint8)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
