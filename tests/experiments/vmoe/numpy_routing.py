"""Routing in NumPy, group by group, expert by expert and token by token, from the definitions."""

import numpy as np
import scipy.optimize


def softmax(logits, axis=-1):
    values = np.exp(logits - logits.max(axis=axis, keepdims=True))
    return values / values.sum(axis=axis, keepdims=True)


def hard_mask(scores, k):
    """1 for the `k` largest of a vector, the first of equal ones."""
    mask = np.zeros(len(scores))
    mask[np.argsort(-scores, kind="stable")[:k]] = 1
    return mask


def relaxed_mask(scores, k, lam, p):
    """The maximiser of `<x, y> - lam / p sum(y^p)` over `0 <= y <= 1, sum(y) = k`, by its one multiplier."""
    scores = np.asarray(scores, np.float64)

    def mask(multiplier):
        return np.clip(np.maximum(scores - multiplier, 0) / lam, 0, 1) ** (1 / (p - 1))

    bounds = scores.min() - 2 * lam, scores.max()
    return mask(scipy.optimize.brentq(lambda multiplier: mask(multiplier).sum() - k, *bounds, xtol=1e-15, rtol=1e-15))


def expert_choice(scores, k, capacity, lam=0.0, p=2.0):
    """Of one group, scores [S, E]: the mask [S, E], hard for lam = 0, and for each expert the tokens it serves."""
    columns = [relaxed_mask(of_expert, k, lam, p) if lam else hard_mask(of_expert, k) for of_expert in scores.T]
    in_order = [np.argsort(-of_expert, kind="stable")[:capacity] for of_expert in scores.T]
    return np.stack(columns, axis=1), [tokens[mask[tokens] > 0] for tokens, mask in zip(in_order, columns, strict=True)]


def token_choice(gates, selected, capacity, priority):
    """Of one group, gates [S, E]: the mask [S, E] of what tokens select, and for each expert the tokens it serves."""
    num_tokens, num_experts = gates.shape
    experts = np.argsort(-gates, axis=1, kind="stable")[:, :selected]
    tokens = np.arange(num_tokens) if priority == "order" else np.argsort(-gates.max(axis=1), kind="stable")
    mask, served = np.zeros(gates.shape), [[] for _ in range(num_experts)]
    for choice in range(selected):
        for token in tokens:
            expert = experts[token, choice]
            mask[token, expert] = 1
            if len(served[expert]) < capacity:
                served[expert].append(token)
    return mask, served


def in_buffers(mask, served):
    """The mask [S, E] of those alone that are served."""
    found = np.zeros(mask.shape)
    for expert, tokens in enumerate(served):
        found[tokens, expert] = mask[tokens, expert]
    return found
