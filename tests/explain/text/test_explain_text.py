"""Attribution of texts against one call of the model at a time: no padding, no batch, no shared prefix."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tests.explain.text.models import byte_tokenizer, classifier, decoder, word_tokenizer
from torus.explain import modes
from torus.explain.text import TextExplainer, explain_each_token, explain_text, plan_text
from torus.explain.text.task import task

PROMPT = "A bird, in a tree."
CHAT = [
    {"role": "system", "content": "You answer in one word, and you are always kind to people."},
    {"role": "user", "content": "Where do birds live? Please say."},
]


def log_prob(model: Any, ids: list[int], continuation: list[int]) -> float:
    logits = model(torch.tensor([ids + continuation])).logits[0].double().log_softmax(-1)
    return sum(float(logits[len(ids) + place - 1, token]) for place, token in enumerate(continuation))


@pytest.mark.parametrize("kind", ["Qwen3", "Llama"])
@pytest.mark.parametrize("chat", [False, True])
def test_leaving_out_words_is_what_it_is_one_at_a_time(kind: str, chat: bool) -> None:
    tokenizer, model = byte_tokenizer(), decoder(kind)
    found = explain_text(model, tokenizer, CHAT if chat else PROMPT, "no!", by="word", replacement=" ")
    rendered = tokenizer.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True) if chat else PROMPT
    expected = []
    (space,) = tokenizer(" ")["input_ids"]
    whole = log_prob(model, tokenizer(rendered)["input_ids"], tokenizer("no!")["input_ids"])
    for start, end in found.segments:
        before = tokenizer(rendered[:start].rstrip(" ") if rendered[:start].strip() else "")["input_ids"]
        after = tokenizer(rendered[end:])["input_ids"]
        length = len(tokenizer(rendered)["input_ids"])
        ids = before + [space] * (length - len(before) - len(after)) + after
        expected.append(whole - log_prob(model, ids, tokenizer("no!")["input_ids"]))
    torch.testing.assert_close(torch.tensor(found.scores), torch.tensor(expected), rtol=1e-4, atol=5e-6)
    assert found.certificate.gradients == 0
    assert found.question == "log-probability that 'no!' follows"


def test_words_have_the_gradients_of_their_embeddings() -> None:
    tokenizer, model = byte_tokenizer(), decoder()
    found = explain_text(
        model, tokenizer, PROMPT, "n", against="y", method="input_x_gradient", replacement=" ", by="word"
    )
    ids = torch.tensor([tokenizer(PROMPT)["input_ids"]])
    layer = model.get_input_embeddings()
    embedded = layer(ids).requires_grad_()
    logits = model(inputs_embeds=embedded).logits[0, -1]
    (logits[tokenizer("n")["input_ids"][0]] - logits[tokenizer("y")["input_ids"][0]]).backward()
    (space,) = tokenizer(" ")["input_ids"]
    per_token = ((embedded - layer(torch.tensor(space))) * embedded.grad).detach().sum(-1)[0]
    expected = [float(per_token[max(0, a - (PROMPT[a - 1 : a] == " ")) : b].sum()) for a, b in found.segments]
    torch.testing.assert_close(torch.tensor(found.scores), torch.tensor(expected), rtol=1e-4, atol=1e-6)
    assert found.question == "log-probability that 'n' follows rather than 'y'"


def test_a_prompt_with_special_tokens_inside_is_seen_as_the_template_wrote_it() -> None:
    found = explain_text(decoder(), byte_tokenizer(), CHAT, "y", by="line", score="prob")
    assert found.texts == (CHAT[0]["content"], CHAT[1]["content"])


@pytest.mark.parametrize("method", ["feature_ablation", "input_x_gradient"])
@pytest.mark.parametrize("kind", ["Qwen3", "Llama"])
def test_a_shared_prefix_changes_nothing(method: str, kind: str) -> None:
    tokenizer, model = byte_tokenizer(), decoder(kind)
    rendered = tokenizer.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    start = rendered.index("birds")
    arguments: dict[str, Any] = {"by": [(start, start + 5), (start + 6, start + 10)], "method": method}
    assert task(model, tokenizer, CHAT, "y", by=arguments["by"]).prefix == 64
    found = [explain_text(model, tokenizer, CHAT, "yes", share_prefix=shared, **arguments) for shared in (True, False)]
    torch.testing.assert_close(torch.tensor(found[0].scores), torch.tensor(found[1].scores), rtol=1e-5, atol=5e-6)
    assert any(abs(score) > 1e-3 for score in found[0].scores)


@pytest.mark.parametrize("method", ["feature_ablation", "input_x_gradient"])
@pytest.mark.parametrize("free", [False, True])
def test_rows_of_the_matrix_are_parts_of_the_sum(method: str, free: bool) -> None:
    arguments: dict[str, Any] = {"method": method, "explain_continuation": free, "by": "token", "replacement": " "}
    tokenizer, model = byte_tokenizer(), decoder()
    matrix = explain_each_token(model, tokenizer, PROMPT, "yes", **arguments)
    whole = explain_text(model, tokenizer, PROMPT, "yes", **arguments)
    assert matrix.generated == ("y", "e", "s")
    torch.testing.assert_close(matrix.scores.sum(0), torch.tensor(whole.scores), rtol=1e-4, atol=5e-6)
    assert sum(matrix.values) == pytest.approx(float(whole.values), rel=1e-5)
    later = matrix.scores[0, -2:].abs() if free else matrix.scores[0, :0]
    assert (later == 0).all(), "a token is explained by what comes after it"


def test_all_segments_are_left_out_in_one_call() -> None:
    """Case A10: and the others are the two ends."""
    model = decoder()
    rows = []
    model.register_forward_pre_hook(
        lambda module, args, kwargs: rows.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    explain_text(model, byte_tokenizer(), PROMPT, "yes")
    assert sorted(rows) == [1, 1, 9]


def test_the_most_probable_continuation_is_explained_if_none_is_given() -> None:
    tokenizer, model = byte_tokenizer(), decoder()
    ids = torch.tensor([tokenizer(PROMPT)["input_ids"]])
    best = int(model(ids).logits[0, -1].argmax())
    found = explain_text(model, tokenizer, PROMPT)
    assert found.tokens.ids[-1] == best
    assert explain_text(model, tokenizer, PROMPT, generate=4).tokens.generated == 4


@pytest.mark.parametrize("method", ["feature_ablation", "saliency", "deeplift", "exact_shapley"])
def test_the_plan_is_what_it_costs(method: str) -> None:
    arguments: dict[str, Any] = {"target": "yes", "method": method, "chunk": 4, "by": "sentence"}
    planned = plan_text(decoder(), byte_tokenizer(), PROMPT, **arguments).plan
    certificate = explain_text(decoder(), byte_tokenizer(), PROMPT, **arguments).certificate
    counted = certificate.values, certificate.gradients
    # the certificate counts what the method asks for, the plan what the model is given, filling included
    assert all(0 <= more - count < 4 for more, count in zip((planned.values, planned.gradients), counted))
    assert planned.largest <= 4


def test_a_plan_reads_well() -> None:
    text = str(plan_text(decoder(), byte_tokenizer(), PROMPT, "yes"))
    assert text.startswith(
        "feature_ablation: 9 values in 1 call of at most 9 rows; 7 segments, 24 tokens a row; 216 tokens"
    )


@pytest.mark.parametrize("method", ["feature_ablation", "input_x_gradient"])
def test_classes_are_named_and_padding_changes_nothing(method: str) -> None:
    tokenizer, model = word_tokenizer(), classifier()
    text = "the cat sat on a mat."
    found = explain_text(model, tokenizer, text, "good", against=0, method=method)
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    logits = model(ids).logits[0]
    assert float(found.values) == pytest.approx(float(logits[2] - logits[0]), abs=1e-5)
    assert found.texts == ("the", "cat", "sat", "on", "a", "mat", ".")
    if method == "feature_ablation":
        ids[0, 2] = tokenizer.mask_token_id
        changed = model(ids).logits[0]
        assert found.scores[1] == pytest.approx(float(logits[2] - logits[0] - changed[2] + changed[0]), abs=1e-5)
    assert found.question == "logit of class 2 (good) rather than class 0 (bad)"
    assert found.replacement == "[MASK]"


def test_a_sentence_is_compared_with_another() -> None:
    found = explain_text(classifier("BertModel"), word_tokenizer(), "the cat sat", similar_to="the cat sat")
    assert float(found.values) == pytest.approx(1, abs=1e-6)
    assert all(score > 0 for score in found.scores)


@pytest.mark.parametrize("method", ["feature_ablation", "input_x_gradient"])
def test_on_the_device_a_text_of_another_length_runs_the_programs_that_are_there(method: str, device: str) -> None:
    tokenizer, model = byte_tokenizer(), decoder(num_hidden_layers=1).to(device)
    given: dict[str, Any] = {"method": method, "chunk": 1}  # one size of call: half of the programs
    explain_text(model, tokenizer, "One two three four five.", "a", **given)
    found = explain_text(model, tokenizer, PROMPT, "z", **given)
    assert found.certificate.compiles == 0
    assert found.certificate.device.startswith("tpu")
    expected = explain_text(model.cpu(), tokenizer, PROMPT, "z", **given)
    torch.testing.assert_close(torch.tensor(found.scores), torch.tensor(expected.scores), rtol=1e-5, atol=1e-5)


def test_compiled_whole_once_for_all_texts_of_a_length(device: str) -> None:
    tokenizer, model = byte_tokenizer(), decoder(num_hidden_layers=1)
    texts = [("One two. Three four.", "y"), ("A bird! In a tree.", "n")]
    expected = [explain_text(model, tokenizer, *text, by="sentence").scores for text in texts]
    explainer = TextExplainer(model.to(device), tokenizer)
    for text, scores in zip(texts, expected):
        found = explainer.explain(*text, by="sentence", mode="compiled")
        torch.testing.assert_close(torch.tensor(found.scores), torch.tensor(scores), rtol=1e-5, atol=1e-5)
    assert found.certificate.compiles == 0


@pytest.mark.parametrize("method", ["feature_ablation", "input_x_gradient"])
def test_an_explainer_captures_once_for_all_texts_of_a_length(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    captured = []

    def capture(function: Any, tensors: Any) -> Any:
        captured.append(make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*tensors))
        return captured[-1]

    monkeypatch.setattr(modes, "_capture", capture)
    tokenizer, model = byte_tokenizer(), decoder(num_hidden_layers=1)
    explainer = TextExplainer(model, tokenizer)
    for prompt, target in ((PROMPT, "yes"), ("No bird in a box!", "no")):
        for call, alone in ((explainer.explain, explain_text), (explainer.each_token, explain_each_token)):
            found = call(prompt, target, method=method, mode="compiled")
            expected = alone(model, tokenizer, prompt, target, method=method)
            torch.testing.assert_close(
                torch.as_tensor(found.scores), torch.as_tensor(expected.scores), rtol=1e-4, atol=1e-5
            )
        if prompt == PROMPT:
            first = len(captured)
    assert len(captured) == first


@pytest.mark.parametrize(
    ("model", "change", "words"),
    [
        (decoder, {"prompt": " \n"}, "no words"),
        (decoder, {"target": ""}, "empty"),
        (decoder, {"target": "ab", "against": "c"}, "between two tokens"),
        (decoder, {"target": "a", "generate": 3}, "not both"),
        (decoder, {"target": "a", "score": "loss"}, "log_prob"),
        (decoder, {"target": "a", "by": "chapter"}, "paragraph"),
        (decoder, {"target": "a", "replacement": "ab"}, "has to be one"),
        (decoder, {"target": "a", "prompt": "x" * 300}, "the model takes 256"),
        (decoder, {"similar_to": "a"}, "for encoders"),
        (classifier, {"target": "great"}, "bad, fair, good"),
        (classifier, {"target": 3}, "0, 1, 2"),
        (classifier, {"generate": 3}, "does not generate"),
        (lambda: classifier("BertModel"), {}, "similar_to"),
    ],
)
def test_what_does_not_fit_is_named(model: Any, change: dict[str, Any], words: str) -> None:
    made = model()
    tokenizer = byte_tokenizer() if getattr(made, "can_generate", bool)() else word_tokenizer()
    with pytest.raises(ValueError, match=words):
        explain_text(made, tokenizer, **{"prompt": PROMPT} | change)


@pytest.mark.parametrize("method", ["exact_shapley", "shapley_sampling", "kernel_shap"])
def test_shapley_values_of_sentences_sum_to_what_they_explain(method: str) -> None:
    found = explain_text(decoder(), byte_tokenizer(), "One. Two? Three! Four.", "y", by="sentence", method=method)
    assert len(found.scores) == 4
    assert sum(found.scores) == pytest.approx(float(found.values - found.baseline_values), abs=1e-5)
    assert found.certificate.gradients == 0
    exact = explain_text(
        decoder(), byte_tokenizer(), "One. Two? Three! Four.", "y", by="sentence", method="exact_shapley"
    )
    errors = found.score_errors or (0.0,) * 4
    assert all(abs(a - b) <= 4 * error + 1e-4 for a, b, error in zip(found.scores, exact.scores, errors))


@pytest.mark.parametrize("method", ["integrated_gradients", "deeplift", "attn_lrp"])
def test_methods_that_promise_a_sum_keep_it(method: str) -> None:
    found = explain_text(decoder(num_hidden_layers=1), byte_tokenizer(), PROMPT, "yes", method=method)
    assert found.certificate.passed
    assert found.certificate.completeness_gap is not None
    if method != "attn_lrp":  # its sum is the value itself
        assert sum(found.scores) == pytest.approx(float(found.values - found.baseline_values), rel=1e-3)


def test_a_budget_changes_the_batches_and_not_the_scores() -> None:
    found = [
        explain_text(decoder(), byte_tokenizer(), PROMPT, "yes", budget=budget).scores for budget in ("1GiB", None)
    ]
    torch.testing.assert_close(torch.tensor(found[0]), torch.tensor(found[1]), rtol=1e-4, atol=5e-6)


def test_a_budget_that_is_too_small_is_refused_before_anything_runs() -> None:
    with pytest.raises(ValueError, match="the budget of"):
        explain_text(decoder(), byte_tokenizer(), PROMPT, "yes", budget=1000)
