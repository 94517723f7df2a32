"""Compares the operators with their peers: ``python -m scripts.bench [--quick] [--peers=jaxopt,ott,entmax]``.

Prints tables and the targets, and writes ``<results>/<hardware>.json``. Peers that are not installed are left out,
and said to be; ``pip install -r requirements-bench.txt`` brings them all. About six minutes on two cores.
"""

import argparse
import dataclasses
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.core.record.environment import Launch, describe
from experiments.core.record.files import write_json
from scripts.bench import peers, plan, report
from scripts.bench.contestants import baselines, operators
from scripts.bench.run import run


def hardware_name(environment: dict[str, Any]) -> str:
    """A file name for the machine: its CPU and cores, or its accelerator."""
    platform, machine, devices = environment["devices"]["platform"], environment["machine"], environment["devices"]
    if platform == "cpu":
        words = ["cpu", machine["cpu"] or "unknown", f"{machine['cores']}c"]
    else:
        words = [platform, devices["kind"]]
    return "-".join(re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") for word in words)


def main(arguments: Sequence[str]) -> int:
    """Runs the command; 1 if an operator of ours raised or computed something wrong."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bench", description=(__doc__ or "").split(":")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, under a minute")
    parser.add_argument("--peers", default=",".join(peers.PEERS), help="comma-separated, may be empty; default: all")
    parser.add_argument("--results", type=Path, default=Path("results/bench"), help="directory to write to")
    options = parser.parse_args(arguments)
    wanted = [name for name in options.peers.split(",") if name]
    if unknown := sorted(set(wanted) - set(peers.PEERS)):
        parser.error(f"--peers: unknown {', '.join(unknown)}; known: {', '.join(peers.PEERS)}")
    options.results.mkdir(parents=True, exist_ok=True)

    chosen = plan.QUICK if options.quick else plan.FULL
    environment = describe(Launch(command=["python", "-m", "scripts.bench", *arguments]))
    others, record = peers.load(wanted)
    for name, peer in record.items():
        if peer["status"] in ("missing", "unusable"):
            print(f"peer {name} is {peer['status']}: {peer['reason']}", flush=True)
    contestants = [*operators(chosen.lams), *baselines(), *others]
    results = run(chosen, contestants, lambda line: print(line, flush=True))
    settings = {"quick": options.quick, **dataclasses.asdict(chosen)}
    document = {"environment": environment, "settings": settings, "peers": record, **results}

    path = options.results / f"{hardware_name(environment)}{'-quick' if options.quick else ''}.json"
    write_json(path, document)
    print()
    for line in report.lines(document):
        print(line)
    print(f"results are in {path}")
    ours = {contestant.name for contestant in contestants if contestant.ours}
    rows = [row for case in results["cases"] for row in case["results"] if row["contestant"] in ours]
    return int(any(row["status"] in ("wrong", "failed") for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
