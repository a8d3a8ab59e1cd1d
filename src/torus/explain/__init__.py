"""Attribution on any device, with a certificate for every result.

``explain(model, inputs, target, method=...)`` is the whole of it for most; methods are functions over `Function`, which
is the value of a model at points and its gradient there, so that they run eagerly, fused, compiled, in chunks and on
many devices alike. `explain_text` is the same for language models and encoders.
"""

from torus.explain.certificate import Certificate as Certificate
from torus.explain.exported import export_attribution as export_attribution
from torus.explain.function import Function as Function
from torus.explain.function import model_function as model_function
from torus.explain.methods import METHODS as METHODS
from torus.explain.methods import Attribution as Attribution
from torus.explain.methods import Run as Run
from torus.explain.result import Explanation as Explanation
from torus.explain.run import explain as explain
from torus.explain.text import TextExplainer as TextExplainer
from torus.explain.text import explain_each_token as explain_each_token
from torus.explain.text import explain_text as explain_text
from torus.explain.text import plan_text as plan_text

__all__ = [
    "METHODS",
    "Attribution",
    "Certificate",
    "Explanation",
    "Function",
    "Run",
    "TextExplainer",
    "explain",
    "explain_each_token",
    "explain_text",
    "export_attribution",
    "model_function",
    "plan_text",
]
