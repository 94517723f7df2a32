"""Compares the operators with their peers: ``python -m scripts.bench [--quick] [--peers=jaxopt,ott,entmax]``.

Prints tables and the targets, and writes the section ``masks`` of ``<results>/<hardware>.json``. Peers that are not
installed are left out, and said to be; ``pip install -r requirements-bench.txt`` brings them all. About six minutes on
two cores. The record is written after each case: if the command was stopped, the same one goes on.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence

from experiments.core import console
from scripts.bench import contestants, peers, record, report, run, sizes
from scripts.bench.failure import LostDeviceError


def _known_peers(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    if unknown := sorted(set(names) - set(peers.PEERS)):
        raise argparse.ArgumentTypeError(f"unknown {', '.join(unknown)}; known: {', '.join(peers.PEERS)}")
    return names


def main(arguments: Sequence[str]) -> int:
    """Runs the command; 1 if an operator of ours raised or computed something wrong, or a part failed."""
    parser = record.parser("scripts.bench", __doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, under a minute")
    parser.add_argument("--peers", type=_known_peers, help="comma-separated, may be empty; default: all")
    options = record.parse(parser, arguments, harmless=("quick",))
    wanted = list(peers.PEERS) if options.peers is None else options.peers
    environment = record.begin("scripts.bench", arguments, options.results)

    chosen = sizes.QUICK if options.quick else sizes.FULL
    others, found = peers.load(wanted)
    for name, peer in found.items():
        if peer["status"] in ("missing", "unusable"):
            print(f"peer {name} is {peer['status']}: {peer['reason']}", flush=True)
    compared = [*contestants.operators(chosen.lams), *contestants.baselines(), *others]
    settings = {"quick": options.quick, **dataclasses.asdict(chosen)}
    name = "masks" + "-quick" * options.quick
    kept = record.keep(options.results, name, environment, {"settings": settings, "peers": found})
    try:
        document = run.run(chosen, compared, lambda line: print(line, flush=True), kept)
    except LostDeviceError as error:
        print(f"error: {error}: the same command goes on without it", file=sys.stderr)
        return 1
    path = record.write(options.results, name, environment, document)
    print()
    for line in report.lines(document):
        print(line)
    print(f"results are in {path}")
    ours = {contestant.name for contestant in compared if contestant.ours}
    rows = [row for case in document["cases"] for row in case["results"] if row["contestant"] in ours]
    return int(bool(document.get("failed")) or any(row["status"] in ("wrong", "failed") for row in rows))


if __name__ == "__main__":
    console.run(main)
