"""Options that count something are checked before anything is computed."""

import pytest

TPU = ["--name=tpu", "--zone=z", "--type=v6e-8"]


@pytest.mark.parametrize(
    ("platform", "options", "message"),
    [
        ("local", ["--processes=0"], "argument --processes: must be at least 1, got 0"),
        ("local", ["--devices=0"], "argument --devices: must be at least 1, got 0"),
        ("local", ["--jobs=0"], "argument --jobs: must be at least 1, got 0"),
        ("local", ["--jobs=two"], "argument --jobs: must be a whole number, got 'two'"),
        ("local", ["--retries=-1"], "argument --retries: must be at least 0, got -1"),
        ("slurm", ["--nodes=0"], "argument --nodes: must be at least 1, got 0"),
        ("slurm", ["--gpus_per_node=-8"], "argument --gpus_per_node: must be at least 0, got -8"),
        ("gke", ["--cluster=c", *TPU[1:], "--slices=0"], "argument --slices: must be at least 1, got 0"),
        ("gke", ["--cluster=c", *TPU[1:], "--restarts=-1"], "argument --restarts: must be at least 0, got -1"),
        ("tpu-vm", [*TPU, "--workers=0"], "argument --workers: must be at least 1, got 0"),
    ],
)
def test_counts_that_cannot_be_are_one_line(launch, capfd, tmp_path, platform, options, message):
    with pytest.raises(SystemExit) as exited:
        launch(platform, "mnist_pruning", f"--workdir={tmp_path}", *options)
    assert exited.value.code == 2
    assert capfd.readouterr().err.splitlines()[-1].endswith(f"error: {message}")
    assert list(tmp_path.iterdir()) == []
