"""Attribution for language models and encoders: of prompts and continuations, by token, word, sentence or segment."""

from torus.explain.text.matrix import TokenMatrix as TokenMatrix
from torus.explain.text.matrix import explain_each_token as explain_each_token
from torus.explain.text.result import TextExplanation as TextExplanation
from torus.explain.text.run import TextPlan as TextPlan
from torus.explain.text.run import explain_text as explain_text
from torus.explain.text.run import plan_text as plan_text
from torus.explain.text.tokens import Tokens as Tokens

__all__ = ["TextExplanation", "TextPlan", "TokenMatrix", "Tokens", "explain_each_token", "explain_text", "plan_text"]
