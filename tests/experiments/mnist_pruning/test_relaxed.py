"""The relaxed operator's settings: what is the paper's, and what they are called."""

import pytest

from configs import mnist_pruning
from experiments.core.config import to_json
from experiments.core.errors import UsageError
from experiments.mnist_pruning import experiment, relaxed
from experiments.mnist_pruning.methods import METHODS


def papers(**fields):
    config = mnist_pruning.get_config("relaxed")
    config.update_from_flattened_dict(relaxed.papers(2.0) | fields)
    return config


def test_the_papers_setting_is_known_in_runs_of_today_and_in_earlier_ones():
    config = to_json(papers())
    assert relaxed.is_papers(config)
    for field in (*relaxed.EARLIER, "density_schedule"):
        del config[field]
    assert relaxed.is_papers(config)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"lam.start": 1e-3}, "lam = 1e-3"),
        ({"debias": True}, "rescaled"),
        ({"lam_times_size": True}, "lam = 1e-4 times the size"),
        ({"form": "mask"}, "mask"),
        ({"form": "stop_gradient"}, "stop gradient"),
        ({"hard_after": 0.5}, "hard after 50 % of training"),
        ({"density_schedule.name": "cubic"}, "cubic to 70 % of training"),
    ],
)
def test_what_differs_from_the_paper_is_not_the_papers_and_is_told(fields, told):
    config = to_json(papers(**fields))
    assert not relaxed.is_papers(config)
    setting = METHODS["relaxed"].setting
    assert set(setting(config)) - set(setting(to_json(papers()))) == {told}


@pytest.mark.parametrize("form", ["mask", "mask_of_squares"])
def test_a_mask_is_not_rescaled(form):
    with pytest.raises(UsageError, match=rf"debias=True is not allowed: it must be False with form='{form}'"):
        experiment.RECIPE.validate(papers(form=form, debias=True))
