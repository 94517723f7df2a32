"""The losses that the suites compare, as fields of the config."""

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
