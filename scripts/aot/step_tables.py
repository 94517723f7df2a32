"""Tables of the steps that were compiled: what they need, what they are beside each other, and how they scale."""

from collections.abc import Iterator, Sequence
from typing import Any

from experiments.core.report.markdown import line
from scripts.aot import hardware, record

_PAIRS = (("relaxed", "hard"), ("top-3", "cross-entropy"))


def steps_table(documents: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A row for each step."""
    yield line(("run", "type", "mesh", "memory, GB", "fits", "sent, MB", "compute, ms", "memory, ms",
                "interconnect, ms", "least, ms", "MFU at most", "evaluation, ms", "code"))  # fmt: skip
    yield line(["---"] * 3 + ["---:"] + ["---"] + ["---:"] * 7 + ["---"])
    for document in sorted(documents, key=lambda one: (one["name"], one["rates"]["device"], one["devices"])):
        train = document["train"]
        mesh = ", ".join(f"{axis} {size}" for axis, size in document["mesh"].items() if size > 1) or "one"
        commit = record.commit(document)
        start = [document["name"], document["type"], mesh]
        if "memory" not in train:
            needed = f"{train['needed_bytes'] / 1e9:.1f} of {train['available_bytes'] / 1e9:.1f}"
            yield line([*start, needed, "**no**", *["-"] * 7, commit])
            continue
        memory, least = train["memory"], train["roofline"]
        yield line(
            [
                *start,
                f"{memory['peak'] / 1e9:.2f} of {memory['available'] / 1e9:.1f}",
                "yes" if train["fits"] else "**no**",
                f"{train['sent_bytes'] / 1e6:.1f}",
                *(
                    f"{1e3 * least[part]:.2f}"
                    for part in ("compute_seconds", "memory_seconds", "interconnect_seconds", "least_seconds")
                ),
                f"{100 * train['mfu_at_most']:.0f} %" if "mfu_at_most" in train else "-",
                f"{1e3 * document['evaluation']['roofline']['least_seconds']:.2f}" if "evaluation" in document else "-",
                commit,
            ]
        )


def what_helps(documents: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A line for each step that does not fit."""
    ones = [one for one in documents if not one["train"]["fits"]]
    if ones:
        yield from ("", "What does not fit, and what helps:", "")
    for one in sorted(ones, key=lambda one: (one["name"], one["type"])):
        yield f"- {one['name']}, {one['type']}: {'; '.join(one['train']['change'])}"


def to_other_slices(documents: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What the times of steps on several slices leave out: the makers publish no rate for it."""
    found = {(one["name"], one["type"]): one["train"].get("sent_between_slices_bytes", 0.0) for one in documents}
    if any(found.values()):
        yield from ("", "Sent by a device to other slices in a step besides, which no time counts:", "")
    for (name, type_), count in sorted(found.items()):
        if count:
            yield f"- {name}, {type_}: {count / 1e6:.1f} MB"


def shares(documents: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Of the steps that the paper compares: relaxed over hard router, top-3 loss over cross-entropy."""
    by_name = {(one["name"], one["type"]): one for one in documents if "memory" in one["train"]}
    rows = []
    for (name, type_), ours in by_name.items():
        hard = next(
            (found for new, old in _PAIRS if new in name and (found := by_name.get((name.replace(new, old), type_)))),
            None,
        )
        if hard and hard["code"] != ours["code"]:  # what has changed between them would pass for the difference
            rows.append(line([name, type_, *["-"] * 4]))
        elif hard:
            relaxed, hard = ours["train"], hard["train"]
            over = [relaxed[count] / hard[count] for count in ("operations_in_bfloat16", "bytes", "sent_bytes")]
            over.append(relaxed["roofline"]["least_seconds"] / hard["roofline"]["least_seconds"])
            rows.append(line([name, type_, *(f"{ratio:.4f}" for ratio in over)]))
    if rows:
        yield ""
        yield "Of the relaxed router's step over the hard one's, and of the top-3 loss's over cross-entropy's,"
        yield "where both are of the same code:"
        yield ""
        yield line(("run", "type", "operations", "bytes", "sent", "least time"))
        yield line(["---"] * 2 + ["---:"] * 4)
        yield from sorted(rows)


def scaling(documents: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Of runs on slices of a kind: how far each is from so many times the speed of the smallest."""
    by_run: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in sorted(documents, key=lambda one: one["devices"]):
        if "memory" in one["train"] and hardware.parse(one["type"]).slices == 1:
            by_run.setdefault((one["name"], one["rates"]["device"]), []).append(one)
    several = {key: found for key, found in by_run.items() if len(found) > 1}
    if not several:
        return
    yield ""
    yield "The same step on more devices, its batch divided among them. *Of ideal*: of the speed of the first times the"
    yield "devices. What stops it is what the least time is bound by."
    yield ""
    yield line(("run", "chip", "devices", "least, ms", "of ideal", "bound by", "sent by a device, MB"))
    yield line(["---"] * 2 + ["---:"] * 3 + ["---", "---:"])
    for (name, device), found in sorted(several.items()):
        first = found[0]["devices"] * found[0]["train"]["roofline"]["least_seconds"]
        for one in found:
            train, least = one["train"], one["train"]["roofline"]["least_seconds"]
            share = f"{100 * first / (one['devices'] * least):.0f} %"
            sent = f"{train['sent_bytes'] / 1e6:.1f}"
            yield line(
                [name, device, str(one["devices"]), f"{1e3 * least:.2f}", share, train["roofline"]["bound"], sent]
            )
