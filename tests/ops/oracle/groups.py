"""Answers for groups that are kept or pruned together, and for runs that keep some of their own.

Sizes compete: means of scores ``s_g = sum(x_i) / m``, or root mean squares. A mask is ``y_i = z_g``; magnitudes are
``y_i = x_i w_g / s_g``, with

    dy_i = w_g / s_g dx_i + x_i / s_g (dw_g - w_g / s_g ds_g),        ds_g = sum_i x_i dx_i / (m s_g),

and where a group is all 0, it moves as one that is kept if all are, and else not at all.
"""

import dataclasses

import numpy as np

from tests.ops.oracle.equation import Curve
from tests.ops.oracle.problem import Answer, Problem
from tests.ops.oracle.reals import Real, Reals
from tests.ops.oracle.topk import chosen, share_at_zero, tied, topk


def groups(of: Problem, members: np.ndarray, curve: Curve, debias: bool, whole: bool) -> Answer:
    """Each entry belongs to the group of the number in ``members``; ``whole`` says that the operator is a hard one."""
    with np.errstate(all="ignore"):
        return _groups(of, members, curve, debias, whole)


def _groups(of: Problem, members: np.ndarray, curve: Curve, debias: bool, whole: bool) -> Answer:
    number = int(members.max()) + 1
    belongs = (members[:, None] == np.arange(number)).astype(Real)
    count = belongs.sum(axis=0)
    x, h = of.x, of.cotangent
    s = np.sqrt((x * x) @ belongs / count) if curve.even else x @ belongs / count
    some = s > 0
    size = np.where(some, s, 1)
    along = x / size[:, members] if curve.even else np.ones_like(x)
    pulls, strengths = (h * along) @ belongs, np.abs(h * along) @ belongs
    flat = dataclasses.replace(of, x=s, where=np.ones(s.shape, bool), extra=0 * s)
    found = topk(dataclasses.replace(flat, cotangent=pulls), curve, debias)
    largest = topk(dataclasses.replace(flat, cotangent=strengths), curve, debias)
    adding = of.unit * (8 + 0.5 * count.max())
    slack = {name: found.slack[name] + 4 * largest.slack[name] for name in found.slack}
    slack["value"], in_s = found.slack["value"], found.wanted["x"]
    wanted = dict(found.wanted)
    reach = found.reach[:, members]
    if not curve.even:
        wanted["value"], slack["value"] = wanted["value"][:, members], slack["value"][:, members]
        wanted["x"] = (in_s / count)[:, members]
        slack["x"] = (slack["x"] / count)[:, members] + adding * np.abs(wanted["x"])
        return Answer(wanted, slack, reach, largest.scale, found.loose)
    if whole:
        z = chosen(s, of.k)
        wanted["value"] = x * z[:, members]
        wanted["x"] = np.where(tied(s, z), np.nan, h * z[:, members])
        exact = {name: 0 * error for name, error in slack.items()}
        return Answer(wanted, exact | {"value": 0 * x, "x": 0 * x}, 0 * x, largest.scale, found.loose)

    share = share_at_zero(of.k, some.sum(axis=1, keepdims=True), np.full_like(of.k, number), of.lam, of.order)
    kept = np.ones_like(of.lam) if debias else np.where(of.lam == 0, 1, 1 / (1 + of.lam) if of.order == 1 else 0)
    factor = np.where(some, found.wanted["value"] / size, kept * share)
    turned = np.where(some, in_s - pulls * factor, 0)
    wanted["value"] = x * np.nan_to_num(factor)[:, members]
    wanted["x"] = h * factor[:, members] + along * (turned / count)[:, members]
    of_factor = np.where(some, found.slack["value"] / size, 0) + 8 * of.unit * np.abs(factor)
    slack["value"] = np.abs(x) * of_factor[:, members]
    turns = slack["x"] + strengths * of_factor + adding * (strengths * np.abs(factor) + np.abs(in_s))
    rough = np.abs(h) * of_factor[:, members] + np.abs(along) * (turns / count)[:, members]
    slack["x"] = rough + 8 * of.unit * np.abs(wanted["x"])
    return Answer(wanted, slack, reach, largest.scale, found.loose)


def runs(of: Problem, members: np.ndarray, curve: Curve, debias: bool) -> Answer:
    """The entries of each group compete among themselves; all groups are of one size."""
    places = np.argsort(members, kind="stable")  # of the entries, run by run
    rows, number = len(of.x), int(members.max()) + 1

    def apart(values: np.ndarray) -> np.ndarray:
        return values[:, places].reshape(rows * number, -1)

    def together(values: Reals) -> Reals:
        if values.shape[1] == 1:
            return values.reshape(rows, number).sum(axis=1, keepdims=True)
        back = np.empty((rows, len(places)), values.dtype)
        back[:, places] = values.reshape(rows, -1)
        return back

    arrays = {name: apart(getattr(of, name)) for name in ("x", "cotangent", "where", "extra")}
    # A column for each run, where rounding has moved it otherwise in each.
    scalars = {name: np.broadcast_to(getattr(of, name), (rows, number)).reshape(-1, 1) for name in ("k", "lam")}
    found = topk(dataclasses.replace(of, **arrays, **scalars), curve, debias)
    loose = found.loose.reshape(rows, number)
    wanted = {name: together(values) for name, values in found.wanted.items()}
    slack = {name: together(values) for name, values in found.slack.items()}
    for name in ("k", "lam"):
        slack[name] = slack[name] + of.unit * (4 + 0.5 * number) * together(np.abs(np.nan_to_num(found.wanted[name])))
    scale = {name: values.reshape(rows, number).sum(axis=1, keepdims=True) for name, values in found.scale.items()}
    return Answer(wanted, slack, together(found.reach), scale, loose)
