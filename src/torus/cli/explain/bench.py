"""``torus explain bench``: what an attribution costs on the CPU and in each mode of the device."""

from __future__ import annotations

import argparse

from torus.cli import CommandError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of `torus.explain.bench`."""
    try:
        from torus.explain import bench
    except ImportError as error:
        raise CommandError(f"`torus explain bench` needs PyTorch: {error}") from error
    bench.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    from torus import backend
    from torus.explain import bench

    backend.register()
    return bench.run(args)
