"""Predicting nodes whose classes have other shares than those of the nodes one learned from.

A split that draws as many training nodes of every class leaves test nodes of which most are of the large classes. A
network then answers small classes too often. What is wrong with its probabilities is one factor per class, the ratio
of the two shares (Bayes' rule), and the shares of the nodes to be predicted can be estimated from the predictions
themselves, without a label of theirs.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .data import Split

_STEPS: Final = 300
_LEAST: Final = -1e4
_CLOSE: Final = 1e-5
"""Shares, and what calibrates, that change by less in a step are found."""


class Corrected(NamedTuple):
    """Predictions for other class shares than those of training."""

    log_prob: Tensor  # [N, C]
    shares: Tensor  # [C], the estimate for the test nodes


@torch.no_grad()
def correct(log_prob: Tensor, label: Tensor, split: Split) -> Corrected:
    """Predictions for the class shares of the test nodes, which are estimated without their labels.

    The probabilities are first calibrated on the validation nodes (:func:`calibrate`), since the estimate takes them at
    their word. A class without training nodes gets probability 0. The estimate may be worse than no correction for a
    network that hardly tells classes apart, and for one that is right but far from sure, as after a few epochs: tens of
    validation nodes do not sharpen it enough.

    Args:
        log_prob: What a network says, ``[N, C]``.
        label: The class of every node ``[N]``; of the test nodes it is not read.
        split: Which nodes were trained on, which calibrate, and which are to be predicted.
    """
    count = torch.bincount(label[split.train], minlength=log_prob.shape[1])
    classes = count.nonzero()[:, 0]
    place = torch.full_like(count, -1)
    place[classes] = torch.arange(len(classes), device=place.device)
    truth = place[label[split.val]]
    known = split.val.nonzero()[:, 0][truth >= 0]
    # In double precision a share of one node in a million does not get lost in a sum; no probability is quite 0.
    said = F.log_softmax(log_prob[:, classes].double().clamp_min(_LEAST), dim=-1)
    said = calibrate(said, said[known], truth[truth >= 0])
    # Calibrated probabilities are for classes as the validation nodes have them. One node more, which is of every class
    # as the training nodes are, keeps shares above 0.
    learned = (said[known].exp().sum(dim=0) + count[classes] / count.sum()) / (len(known) + 1)
    shares = estimate_shares(said[split.test], learned)
    out = torch.full_like(log_prob, -torch.inf)
    out[:, classes] = F.log_softmax(said + (shares / learned).log(), dim=-1).to(log_prob.dtype)
    return Corrected(out, torch.zeros_like(count, dtype=torch.double).index_put((classes,), shares))


def estimate_shares(log_prob: Tensor, learned: Tensor) -> Tensor:
    """The most likely class shares ``[C]`` of nodes, given what a network that learned from others says of them.

    Expectation maximisation, which climbs a concave likelihood (`Saerens, Latinne and Decaestecker, 2002
    <https://doi.org/10.1162/089976602753284446>`_): correct the probabilities for the shares, take their mean for the
    shares, and so on. Where classes can hardly be told apart it is slow, and ends on the way from ``learned``.

    Args:
        log_prob: Log-probabilities of the nodes ``[N, C]``.
        learned: The class shares that these are right for, above 0 ``[C]``: those of the nodes it learned from.
    """
    # How likely a node is in a class, up to a factor of the node's own.
    likely = log_prob.exp() / learned  # [N, C]
    shares = learned
    for _ in range(_STEPS if len(likely) else 0):
        before = shares
        shares = before * (likely.T @ (likely @ before).reciprocal()) / len(likely)
        if float((shares - before).abs().max()) < _CLOSE:
            break
    return shares


def calibrate(log_prob: Tensor, known: Tensor, label: Tensor) -> Tensor:
    """Log-probabilities ``[N, C]`` as sharp, and as biased towards each class, as fits nodes whose classes are known.

    A network that was trained to the end is too sure of itself, and of some classes more than of others. One factor for
    all log-probabilities and one summand per class take that back: the most likely ones, given normal priors around 1
    and 0 (bias-corrected temperature scaling, `Alexandari et al., 2020 <https://arxiv.org/abs/1901.06852>`_, but for
    the priors, without which the factor would be infinite where 20 known nodes are all right).

    Args:
        log_prob: Log-probabilities ``[N, C]``.
        known: Those of the nodes to fit ``[M, C]``.
        label: Their classes ``[M]``.
    """
    classes = log_prob.shape[1]
    truth = F.one_hot(label, classes).to(known)
    prior = torch.zeros(1 + classes).to(known)
    prior[0] = 1.0

    def loss(at: Tensor) -> Tensor:
        return (at - prior).square().sum() / 2 - (F.log_softmax(at[0] * known + at[1:], dim=-1) * truth).sum()

    # Newton's method: the loss is strictly convex, with 1 + C unknowns.
    at = prior
    for _ in range(_STEPS):
        prob = F.softmax(at[0] * known + at[1:], dim=-1)  # [M, C]
        wrong, weighted = prob - truth, prob * known
        mean = weighted.sum(dim=1)  # [M]
        gradient = at - prior + torch.cat(((wrong * known).sum()[None], wrong.sum(dim=0)))
        curvature = torch.eye(1 + classes).to(known)
        curvature[0, 0] += (weighted * known).sum() - mean @ mean
        curvature[0, 1:] += weighted.sum(dim=0) - mean @ prob
        curvature[1:, 0] = curvature[0, 1:]
        curvature[1:, 1:] += prob.sum(dim=0).diag() - prob.T @ prob
        step = torch.linalg.solve(curvature, gradient)
        while float(step.abs().max()) > _CLOSE and loss(at - step) > loss(at):
            step = step / 2
        at = at - step
        if float(step.abs().max()) < _CLOSE:
            break
    return F.log_softmax(at[0] * log_prob + at[1:], dim=-1)
