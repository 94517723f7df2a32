"""Tables and the figure, of runs with known numbers."""

import matplotlib as mpl
import pytest

from configs.sparse_attention import get_config
from experiments.core.report.style import STYLE
from experiments.sparse_attention import report
from tests.experiments.support import set_fields
from tests.scripts.workdirs import write_run


def write(path, selector, accuracies, keys, task="recall", **fields):
    """A finished run with `accuracies[row][seed]` at equal distances, and these keys with a gradient."""
    config = get_config(f"selector={selector},task={task}")
    set_fields(config, fields)
    config.seeds, config.eval_every = tuple(range(len(accuracies[0]))), config.steps // (len(accuracies) - 1)
    prefix, count = "test" if config.split == "test" else "valid", len(config.seeds)
    rows = [
        {
            "epoch": number, "step": config.eval_every * number, "seconds": float(number),
            "train_loss": [1.0] * count, "diverged": [False] * count,
            f"{prefix}_loss": [1.0] * count, f"{prefix}_accuracy": values,
            f"{prefix}_bits": [value / 50 for value in values],
            "keys_read": [2.0] * count, "keys_with_gradient": [keys - number] * count,
        }
        for number, values in enumerate(accuracies)
    ]  # fmt: skip
    write_run(path, config, rows, "sparse_attention")


def test_tables_say_who_solves_the_task(tmp_path):
    write(tmp_path / "dense", "dense", [[0.0] * 3, [100.0] * 3], 48.0)
    for k, end in ((1, 50.0), (2, 99.5)):
        write(
            tmp_path / f"st{k}",
            "straight_through",
            [[0.0] * 3, [80.0, 95.0, 95.0], [end, end, end + 0.3]],
            6.0,
            selector__k=k,
        )
        write(tmp_path / f"kl{k}", "kl", [[0.0] * 3, [50.0] * 3, [89.0, 90.5, 91.0]], 48.0, selector__k=k)
    write(tmp_path / "text", "kl", [[0.0] * 3, [40.0] * 3], 48.0, task="text", selector__k=8)
    write(tmp_path / "longer", "longer", [[0.0] * 3, [45.0] * 3], 0.0, task="text")
    runs = report.PRESENTATION.load(tmp_path)[0]
    lines = report.tables(runs, frozenset())
    _, row = [line for line in lines if line.startswith("| hard, gradient of the relaxed mask |")]
    assert [cell.strip() for cell in row.split("|")][2:7] == ["2", "99.60 ± 0.43", "3 of 3", "200", "6.0 to 4.0"]
    (taught,) = [line for line in lines if line.startswith("| taught: dense attention (KL) | 2 |")]
    assert "| 300 (1) |" in taught
    (dense,) = [line for line in lines if line.startswith("| dense attention |")]
    assert "100.00 ± 0.00" in dense
    (bits,) = [line for line in lines if line.startswith("| taught: dense attention (KL) | 8 |")]
    assert "| 0.80 ± 0.00 | 40.00 ± 0.00 | 48.0 to 47.0 |" in bits
    columns = {"k = 1": f"{report.RECALL}, k = 1", "k = 2": f"{report.RECALL}, k = 2"}
    table = report.overview(runs, columns)
    assert "| hard, gradient of the relaxed mask | 50.10 ± 0.43 | 99.60 ± 0.43 |" in table
    assert "| dense attention | 100.00 ± 0.00 | 100.00 ± 0.00 |" in table
    bits = report.overview(runs, {"k = 8": "text of 128 tokens, 600 steps, k = 8"}, "test_bits")
    assert "| dense attention, trained on | 0.90 ± 0.00 |" in bits  # which has no k
    with mpl.rc_context(STYLE):
        figures = report.figures(runs)
    assert set(figures) == {"keys", "text"}
    (dashed,) = [line for line in figures["text"].axes[0].lines if line.get_linestyle() == "--"]
    assert list(dashed.get_ydata()) == pytest.approx([0.9, 0.9])
