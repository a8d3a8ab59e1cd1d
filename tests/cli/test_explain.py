"""``torus explain``: models from directories and factories; texts, images and tables; what it prints and writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.explain.text.models import byte_tokenizer, classifier, decoder, word_tokenizer
from tests.runtime.conftest import environment
from torus.cli import main

FACTORY = """
import torch
from torch import nn

def table():
    torch.manual_seed(0)
    return nn.Linear(2, 3)

def image():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 2))
    return model, lambda pixels: pixels.permute(2, 0, 1) / 255.0

broken = 3
"""
CPU = ["--device", "cpu"]


@pytest.fixture
def factory(tmp_path: Path) -> str:
    path = tmp_path / "made.py"
    path.write_text(FACTORY)
    return str(path)


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("decoder")
    decoder(num_hidden_layers=1).save_pretrained(path)
    byte_tokenizer().save_pretrained(path)
    return str(path)


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "table.csv"
    path.write_text("name,age,income\nann,1.5,2\nbob,-3,4\n")
    return str(path)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["explain", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_words_of_a_prompt_and_a_report(
    language_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.html"
    assert main(["explain", language_model, "--text", "A bird sings", "--target", "!", *CPU, "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "log-probability that '!' follows"
    assert {line.split()[1] for line in lines[1:4]} == {"A", "bird", "sings"}
    assert lines[-1] == f"written: {out}"
    assert "bird" in out.read_text()


def test_every_token_of_what_the_model_says(language_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, language_model, "--text", "A bird", "--generate", "2", "--each-token", *CPU)
    assert len(found["tokens"]) == 2
    assert [len(token["scores"]) for token in found["tokens"]] == [2, 2]


def test_a_chat_by_sentences_with_a_gradient(
    language_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps([{"role": "user", "content": "One. Two."}]))
    arguments = ["--chat", str(chat), "--target", "a", "--against", "b", "--by", "sentence"]
    found = printed(capsys, language_model, *arguments, "--method", "input_x_gradient", *CPU)
    assert [entry["name"] for entry in found["scores"]] == ["One.", "Two."]
    assert found["certificate"]["gradients"] == 1


def test_the_plan_runs_nothing(language_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", language_model, "--text", "A bird sings", "--target", "!", *CPU, "--plan"]) == 0
    assert capsys.readouterr().out.startswith("feature_ablation: 9 values in 1 call")


def test_a_class_by_its_label(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    classifier().save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    found = printed(capsys, str(tmp_path), "--text", "the cat sat", "--target", "fair", *CPU)
    assert found["question"] == "logit of class 1 (fair)"


def test_a_row_of_a_table_against_the_mean(
    factory: str, table: str, capsys: pytest.CaptureFixture[str], device: str
) -> None:
    found = printed(
        capsys, f"{factory}:table", "--table", table, "--row", "2", "--columns", "income,age", "--target", "1"
    )
    torch.manual_seed(0)
    weight = torch.nn.Linear(2, 3).weight[1].tolist()
    assert [entry["name"] for entry in found["scores"]] == ["income", "age"]
    expected = [weight[0] * (4 - 3), weight[1] * (-3 + 0.75)]
    assert [entry["score"] for entry in found["scores"]] == pytest.approx(expected, rel=1e-5)
    assert found["certificate"]["device"].startswith("tpu")


def test_an_image(factory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (16, 12), (255, 0, 128)).save(tmp_path / "x.png")
    out = tmp_path / "x.svg"
    arguments = ["--image", str(tmp_path / "x.png"), "--size", "8", "--target", "0", "--against", "1"]
    found = printed(capsys, f"{factory}:image", *arguments, *CPU, "--out", str(out))
    assert sum(entry["score"] for entry in found["scores"]) == pytest.approx(
        found["value"] - found["baseline_value"], abs=1e-5
    )
    assert "<image" in out.read_text()


def test_methods_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--methods"]) == 0
    assert "feature_ablation" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere", "--text", "a"], "neither a directory"),
        (["{factory}:table"], "give one input"),
        ([], "give a MODEL"),
        (["{factory}:table", "--table", "{table}"], "row 1, column 'name': 'ann' is no number"),
        (["{factory}:table", "--table", "{table}", "--columns", "weight"], "no column 'weight'; it has name, age"),
        (["{factory}:table", "--table", "{table}", "--row", "3"], "rows 1 to 2"),
        (["{factory}:table", "--table", "{table}", "--columns", "age,income", "--target", "x"], "'x' is no number"),
        (
            ["{factory}:table", "--table", "{table}", "--columns", "age,income", "--method", "magic"],
            "no method 'magic'",
        ),
        (["{factory}:table", "--table", "{table}", "--columns", "age,income", "--option", "a"], "NAME=VALUE"),
        (["{factory}:table", "--table", "{table}", "--columns", "age,income", "--option", "a=1"], "'a'"),
        (["{factory}:table", "--table", "nothing.csv"], "nothing.csv"),
        (["{factory}:table", "--text", "a"], "its tokenizer"),
        (["{factory}:nothing", "--text", "a"], "no function nothing"),
        (["{factory}:broken", "--text", "a"], "no function broken"),
        (["no.such.module:f", "--text", "a"], "no module no.such.module"),
        (["nofile.py:f", "--text", "a"], "no file nofile.py"),
        (["{factory}:image", "--image", "{table}"], "no image"),
        (["{factory}:image", "--chat", "{table}"], "no JSON"),
    ],
)
def test_mistakes(
    arguments: list[str], words: str, factory: str, table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if "--image" in arguments:
        pytest.importorskip("PIL")
    filled = [argument.format(factory=factory, table=table) for argument in arguments]
    assert main(["explain", *filled, *CPU]) == 2
    assert words in capsys.readouterr().err


def test_two_words_name_a_command_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["explain", "bench", "--help"])
    assert capsys.readouterr().out.startswith("usage: torus explain bench")


def test_its_help_needs_no_pytorch() -> None:
    code = """
import sys
sys.modules["torch"] = None
from torus.cli import main
try:
    main(["explain", "--help"])
except SystemExit as ended:
    print("ended", ended.code)
print(main(["explain", "x", "--text", "a"]))
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60)
    assert "ended 0" in done.stdout
    assert done.stdout.splitlines()[-1] == "2" and "needs PyTorch" in done.stderr
