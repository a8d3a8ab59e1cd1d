"""Connectionist temporal classification: the likelihood of a sequence of labels under all its alignments.

A target of S labels becomes 2 S + 1 states: blanks with a label between each two. `log_alpha[n, t, s]` is the logarithm
of the probability of all ways to be in state s at time t.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.registry import lowers

Lengths = Any
"""One length a batch entry: a tensor, or ints."""


def _lengths(lengths: Lengths) -> Any:
    return jnp.asarray(lengths, "int32") if isinstance(lengths, Sequence) else lengths.astype("int32")


def _states(targets: Any, lengths: Any, longest: int, blank: int) -> Any:
    """The class of each state, for each entry; blank beyond its length. Targets lie in padded rows, or end to end."""
    if longest == 0:
        return jnp.full((lengths.shape[0], 1), blank, "int32")
    column = lax.iota("int32", longest)
    if targets.ndim == 1:
        first = jnp.cumsum(lengths) - lengths
        labels = targets.at[first[:, None] + column].get(mode="fill", fill_value=blank)
    else:
        labels = targets[:, :longest]
    labels = jnp.where(column < lengths[:, None], labels.astype("int32"), blank)
    blanks = jnp.full_like(labels, blank)
    return jnp.concatenate([jnp.stack([blanks, labels], -1).reshape(labels.shape[0], -1), blanks[:, :1]], -1)


class _Lattice:
    """States of all entries, with the log probability of each at each time, (T, N, 2 S + 1)."""

    def __init__(self, log_probs: Any, targets: Any, times: Lengths, lengths: Lengths, longest: int, blank: int):
        self.times, self.lengths = _lengths(times), _lengths(lengths)
        self.classes = _states(targets, self.lengths, longest, blank)
        index = jnp.broadcast_to(self.classes, (log_probs.shape[0], *self.classes.shape))
        self.emitted = jnp.take_along_axis(log_probs, index, 2)
        self.last = 2 * self.lengths[:, None]
        self.state = lax.iota("int32", self.classes.shape[1])[None]
        same = self.classes[:, 2:] == self.classes[:, :-2]
        self.skips = jnp.pad(~same, ((0, 0), (2, 0)))[:, : self.classes.shape[1]]
        """Whether a state may follow the one two before it: labels do, unless they are equal."""

    def forward(self) -> Any:
        """log_alpha, (T, N, 2 S + 1)."""
        alive = self.state <= self.last
        start = jnp.where((self.state < 2) & alive, 0.0, -jnp.inf).astype(self.emitted.dtype)

        def step(alpha: Any, now: tuple[Any, Any]) -> tuple[Any, Any]:
            time, emitted = now
            moved = jnp.where(time == 0, start, self._arrive(alpha))
            alpha = jnp.where(alive & (time < self.times[:, None]), moved + emitted, -jnp.inf)
            return alpha, alpha

        return lax.scan(step, jnp.full_like(start, -jnp.inf), (lax.iota("int32", len(self.emitted)), self.emitted))[1]

    def backward(self) -> Any:
        """The logarithm of the probability of all ways to go on from a state, emission included. (T, N, 2 S + 1)."""
        end = jnp.where((self.state == self.last) | (self.state == self.last - 1), 0.0, -jnp.inf)
        end = end.astype(self.emitted.dtype)

        def step(beta: Any, now: tuple[Any, Any]) -> tuple[Any, Any]:
            time, emitted = now
            moved = jnp.where(time == self.times[:, None] - 1, end, self._leave(beta))
            beta = jnp.where(time < self.times[:, None], moved + emitted, -jnp.inf)
            return beta, beta

        steps = (lax.iota("int32", len(self.emitted)), self.emitted)
        return lax.scan(step, jnp.full_like(end, -jnp.inf), steps, reverse=True)[1]

    def _arrive(self, alpha: Any) -> Any:
        return _log_sum(alpha, _shift(alpha, 1), jnp.where(self.skips, _shift(alpha, 2), -jnp.inf))

    def _leave(self, beta: Any) -> Any:
        return _log_sum(beta, _shift(beta, -1), _shift(jnp.where(self.skips, beta, -jnp.inf), -2))


def _shift(x: Any, by: int) -> Any:
    """Columns moved `by` to the right, -inf where none was."""
    size = x.shape[1]
    pad = ((0, 0), (by, 0) if by > 0 else (0, -by))
    padded = jnp.pad(x, pad, constant_values=-jnp.inf)
    return padded[:, :size] if by > 0 else padded[:, -size:]


def _log_sum(*terms: Any) -> Any:
    """log of the sum of exponentials; -inf when all are."""
    high = jnp.maximum(jnp.maximum(terms[0], terms[1]), terms[2])
    high = jnp.where(high == -jnp.inf, jnp.zeros_like(high), high)
    return lax.log(lax.exp(terms[0] - high) + lax.exp(terms[1] - high) + lax.exp(terms[2] - high)) + high


def _loss(log_alpha: Any, times: Any, lengths: Any) -> Any:
    """The negative log likelihood of each entry; without time, 0 for an empty target."""
    rows = lax.iota("int32", lengths.shape[0])
    final = log_alpha[jnp.maximum(times - 1, 0), rows]
    ends = [final[rows, 2 * lengths], final[rows, jnp.maximum(2 * lengths - 1, 0)]]
    neither = jnp.full_like(ends[0], -jnp.inf)
    total = _log_sum(ends[0], jnp.where(lengths > 0, ends[1], neither), neither)
    return -jnp.where(times > 0, total, jnp.where(lengths > 0, neither, jnp.zeros_like(neither)))


@lowers("aten::_ctc_loss", "aten::_ctc_loss.Tensor")
def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    zero_infinity: bool = False,
) -> Any:
    listed = isinstance(target_lengths, Sequence)
    longest = max(target_lengths, default=0) if listed else targets.shape[-1]
    lattice = _Lattice(log_probs, targets, input_lengths, target_lengths, longest, blank)
    log_alpha = lattice.forward()
    return _loss(log_alpha, lattice.times, lattice.lengths), jnp.swapaxes(log_alpha, 0, 1)


@lowers("aten::_ctc_loss_backward", "aten::_ctc_loss_backward.Tensor")
def ctc_loss_backward(
    grad: Any,
    log_probs: Any,
    targets: Any,
    input_lengths: Lengths,
    target_lengths: Lengths,
    neg_log_likelihood: Any,
    log_alpha: Any,
    blank: int,
    zero_infinity: bool = False,
) -> Any:
    """The gradient by logits that a log softmax follows: probability less posterior. 0 beyond the times of an entry."""
    longest = (log_alpha.shape[2] - 1) // 2
    lattice = _Lattice(log_probs, targets, input_lengths, target_lengths, longest, blank)
    paths = jnp.swapaxes(log_alpha, 0, 1) + lattice.backward()
    posterior = _posterior(lattice, paths, neg_log_likelihood, log_probs.shape[2])
    result = (lax.exp(log_probs) - posterior) * grad[:, None]
    time = lax.iota("int32", log_probs.shape[0])[:, None]
    kept = time < lattice.times
    if zero_infinity:
        kept = kept & (neg_log_likelihood != jnp.inf)
    return jnp.where(kept[..., None], result, 0)


def _posterior(lattice: _Lattice, paths: Any, loss: Any, count: int) -> Any:
    """The probability of each class at each time, given the target; NaN where the target is impossible."""
    emitted = jnp.where(lattice.emitted == -jnp.inf, 0, lattice.emitted)  # each path counts its emission twice
    of_states = lax.exp(paths - emitted + loss[:, None])
    times, rows = (lax.broadcasted_iota("int32", paths.shape, axis) for axis in (0, 1))
    classes = jnp.broadcast_to(lattice.classes, paths.shape)
    nothing = jnp.zeros((*paths.shape[:2], count), paths.dtype) + 0 * loss[:, None]
    return nothing.at[times, rows, classes].add(of_states)
