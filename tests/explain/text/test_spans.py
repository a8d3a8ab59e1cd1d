"""Words, sentences, lines and paragraphs of texts in many scripts; tokens and the segments they belong to."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.explain.text.models import byte_tokenizer, word_tokenizer
from torus.explain.text.lengths import padded, rounded
from torus.explain.text.segments import segments
from torus.explain.text.spans import UNITS
from torus.explain.text.tokens import continued, read, read_chat


@pytest.mark.parametrize(
    ("unit", "text", "parts"),
    [
        ("word", 'He said: "don\'t!"', ["He", "said", ":", '"', "don't", "!", '"']),
        ("word", "  naïve  café-bar\n", ["naïve", "café-bar"]),
        ("word", "مرحبا، كيف حالك؟", ["مرحبا", "،", "كيف", "حالك", "؟"]),
        ("word", "हिन्दी में", ["हिन्दी", "में"]),
        ("word", "日本語。abc", ["日", "本", "語", "。", "abc"]),
        ("word", "กำ", ["กำ"[0], "กำ"[1:]]),
        ("word", "👍🏽 ok", ["👍", "🏽", "ok"]),
        ("sentence", "One. Two three! Four", ["One.", "Two three!", "Four"]),
        ("sentence", 'It costs 3.50 now. He said "no." Then', ["It costs 3.50 now.", 'He said "no."', "Then"]),
        ("sentence", "你好。再见\uff01", ["你好。", "再见\uff01"]),
        ("sentence", "A title\n\nA text. End", ["A title", "A text.", "End"]),
        ("line", " a b \n\n c", ["a b", "c"]),
        ("paragraph", "a\nb\n \nc d\n", ["a\nb", "c d"]),
        ("word", "   ", []),
    ],
)
def test_units(unit: str, text: str, parts: list[str]) -> None:
    assert [text[start:end] for start, end in UNITS[unit](text)] == parts


@pytest.mark.parametrize("unit", UNITS)
def test_units_lose_no_letter_and_do_not_overlap(unit: str) -> None:
    text = "Ein Satz. «Noch einer»!\n\nمرحبا بالعالم؟ 日本語です。 x_y (z)...\r\n\tend 👩‍👩‍👧 e\u0301"  # noqa: RUF001
    spans = UNITS[unit](text)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    left = "".join(text[a:b] for a, b in zip([0, *(end for _, end in spans)], [*(s for s, _ in spans), len(text)]))
    assert not left.strip()


def test_segments_of_words_take_their_tokens_and_spaces() -> None:
    tokens = read(byte_tokenizer(), "ab  c.")
    found = segments(tokens, "word")
    assert [tokens.text[a:b] for a, b in found.spans] == ["ab", "c", "."]
    assert found.of_token == (0, 0, 1, 1, 1, 2)


def test_tokens_that_are_parts_of_one_character_are_one_segment() -> None:
    tokens = read(byte_tokenizer(), "é👍a")
    found = segments(tokens, "token")
    assert [tokens.text[a:b] for a, b in found.spans] == ["é", "👍", "a"]
    assert found.of_token == (0, 0, 1, 1, 1, 1, 2)


def test_special_tokens_belong_to_no_segment() -> None:
    tokens = read(word_tokenizer(), "the cat.")
    assert segments(tokens).of_token == (-1, 0, 1, 2, -1)


def test_sums_over_segments() -> None:
    tokens = read(word_tokenizer(), "the cat sat")
    found = segments(tokens, [(0, 7), (8, 11)])
    assert found.sum(torch.tensor([[9.0, 1, 2, 3, 9, 9]])).tolist() == [[3, 3]]


@pytest.mark.parametrize("spans", [[(0, 0)], [(2, 4), (3, 5)], [(0, 99)], [(5, 7), (0, 2)]])
def test_spans_that_do_not_fit_are_refused(spans: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="overlaps"):
        segments(read(byte_tokenizer(), "some text"), spans)


def test_a_chat_is_explained_without_its_template() -> None:
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": " Hi <b> \n"}]
    tokens = read_chat(byte_tokenizer(), messages)
    assert [(block.label, tokens.text[block.start : block.end]) for block in tokens.blocks] == [
        ("system", "Be kind."),
        ("user", "Hi <b>"),
    ]
    free = "".join(tokens.text[start:end] for (start, end), free in zip(tokens.spans, tokens.free) if free)
    assert free == "Be kind.Hi <b>"
    users = read_chat(byte_tokenizer(), messages, free=("user",))
    assert sum(users.free) == len("Hi <b>")


def test_a_continuation_comes_after_the_prompt_and_not_after_its_closing_token() -> None:
    tokenizer = word_tokenizer()
    tokens = continued(read(tokenizer, "the cat"), tokenizer, " sat on")
    assert [tokenizer.decode([token]) for token in tokens.ids] == ["[CLS]", "the", "cat", "sat", "on"]
    assert [tokens.text[a:b] for a, b in tokens.spans[1:]] == ["the", "cat", "sat", "on"]
    assert tokens.generated == 2
    assert not any(tokens.free[-2:])


def test_generated_ids_know_their_text() -> None:
    tokenizer = byte_tokenizer()
    ids = tokenizer("é!")["input_ids"]
    tokens = continued(read(tokenizer, "a"), tokenizer, ids)
    assert tokens.text == "aé!"
    assert [tokens.text[a:b] for a, b in tokens.spans[1:]] == ["", "é", "!"]


def test_lengths_are_few_and_waste_little() -> None:
    sizes = {rounded(count) for count in range(1, 1025)}
    assert len(sizes) == 15
    assert all(count <= rounded(count) <= max(8, 1.5 * count) for count in range(1, 1025))
    assert padded([1, 2], 4, 9).tolist() == [[1, 2, 9, 9]]
