"""The losses that the suites compare, and what they try for them, as fields of the config."""

from collections.abc import Iterator, Sequence
from typing import Any

from experiments.cifar100_vit.losses import LOSSES

Fields = dict[str, Any]


def forms() -> dict[str, Fields]:
    """The losses of all suites, by name."""
    return {
        form: {"loss.name": name, **fields}
        for name, loss in LOSSES.items()
        if loss.everywhere
        for form, fields in (loss.forms or {name: {}}).items()
    }


def forms_on_features() -> dict[str, Fields]:
    """Those that are compared on features: the same, and more."""
    return {
        form: {"loss.name": name, **fields}
        for name, loss in LOSSES.items()
        for form, fields in (dict(loss.forms or {name: {}}) | dict(loss.on_features)).items()
    }


def rates_and_lams(rates: Sequence[float], lams: Sequence[float] = ()) -> Iterator[tuple[str, Fields]]:
    """Each rate, with each lam if there are any: what names a run by them (`lr0.1-lam1`), and the fields."""
    for lam in lams or (None,):
        for rate in rates:
            if lam is None:
                yield f"lr{rate:g}", {"optimizer.learning_rate": rate}
            else:
                yield f"lr{rate:g}-lam{lam:g}", {"optimizer.learning_rate": rate, "loss.lam": lam}
