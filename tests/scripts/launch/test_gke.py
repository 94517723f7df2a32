"""Workloads of Kubernetes: created, waited for, and found again by the next launcher."""

import json

from scripts.launch.training import Training
from tests.scripts.launch.conftest import commands

WORKDIR = "gs://bucket/runs/k"
OVERRIDES = ["--config.seeds=(0, 1)", "--config.note=it's $HOME $$; `x`"]
NAME = f"mnist-pruning-{Training('', 'mnist_pruning', '', WORKDIR).digest}"
LOGS = f"kubectl logs --selector=xpk.google.com/workload={NAME}"


def gke(*options):
    place = ["--cluster=c", "--zone=us-east1-d", "--type=v6e-16", "--commit=HEAD"]
    return ["gke", "mnist_pruning", f"--workdir={WORKDIR}", *place, *options, "--", *OVERRIDES]


def test_a_workload_is_created_as_a_dry_run_says_and_waited_for(cloud, launch):
    _, printed, _ = launch(*gke("--dry_run", "--slices=2", "--create_flag=--spot"))
    status, out, err = launch(*gke("--slices=2", "--create_flag=--spot"))
    assert (status, err) == (0, "")
    look, *rest = cloud.calls  # whether an earlier launcher has left one
    assert look == rest[-1]
    assert rest == [command for command in commands(printed) if command[0] == "xpk"]
    assert {"--num-slices=2", "--tpu-type=v6e-16", "--spot", f"--workload={NAME}"} < set(rest[0])
    assert f"to follow it: {LOGS}" in out


def test_of_a_workload_that_fails_the_logs_are_named_and_the_next_launcher_makes_another(cloud, launch):
    cloud.plans["train"] = [(1, 1, "ValueError: a reason")]
    status, out, _ = launch(*gke())
    assert status == 125
    assert f"FAILED: workload {NAME} has failed: {LOGS}" in out
    assert launch(*gke())[0] == 0
    assert len(cloud.called("delete")) == 1
    assert len(cloud.called("create")) == 2


def test_what_xpk_refuses_is_told_and_tried_again_where_that_may_help(cloud, launch):
    cloud.plans["create"] = [(1, "[XPK] ERROR: no quota", ""), (2, "", "xpk: error: unrecognized arguments: --no")]
    status, out, _ = launch(*gke("--retries=5"))
    assert status == 2
    assert "xpk: [XPK] ERROR: no quota; attempt 1 of 5" in out
    assert "FAILED: xpk: xpk: error: unrecognized arguments: --no" in out


def test_a_workload_that_an_earlier_launcher_has_left_is_waited_for(cloud, launch, bucket_server):
    record = {"state": "submitted", "host": "elsewhere", "pid": 1}
    bucket_server.store("bucket/runs/k/launch.json", json.dumps(record).encode(), None)
    assert "submitted" in launch(*gke("--status"))[1]
    cloud.things[NAME] = {"command": f"--workdir={WORKDIR}"}
    cloud.plans["list"] = [(1, "[XPK] the network is gone", "")]
    status, out, _ = launch(*gke("--retries=1"))
    assert status == 0
    assert "the network is gone; attempt 1 of 1" in out
    assert cloud.called("create") == []
