from __future__ import annotations

import pytest
import torch
from torch.tpu import EagerMode

from tests.device.process import run_unchecked


def test_strict_is_the_mode():
    assert torch.tpu.eager_mode is EagerMode.DEFER_NEVER
    torch.tpu.eager_mode = EagerMode.DEFER_NEVER
    with torch.tpu.set_eager_mode(EagerMode.DEFER_NEVER):
        assert torch.tpu.eager_mode is EagerMode.DEFER_NEVER


def test_fusing_says_that_it_comes_later():
    with pytest.raises(NotImplementedError, match="DEFER_AND_FUSE comes with a later version"):
        torch.tpu.eager_mode = EagerMode.DEFER_AND_FUSE
    with pytest.raises(NotImplementedError), torch.tpu.set_eager_mode(EagerMode.DEFER_AND_FUSE):
        pass
    assert torch.tpu.eager_mode is EagerMode.DEFER_NEVER


def test_a_mode_is_a_mode():
    with pytest.raises(TypeError, match="EagerMode"):
        torch.tpu.eager_mode = "strict"


def test_asking_for_fusing_by_environment_warns():
    result = run_unchecked("import torch, torus; print(torch.tpu.eager_mode.name)", TORCH_TPU_DEFER_AND_FUSE="1")
    assert result.stdout.strip() == "DEFER_NEVER"
    assert "defer_and_fuse has no effect" in result.stderr
