"""What becomes of a text of the repository on a page of the site."""

import os
import posixpath
from pathlib import Path

# Files of the repository that are pages here, too: links to them lead to these pages, links to others to a copy.
PAGES = {
    "README.md": "index",
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contributing",
    "ops/README.md": "choosing",
    "scripts/launch/README.md": "how_to/launch",
    "results/README.md": "results/index",
    "results/bench/README.md": "results/benchmarks",
    "results/chaos/README.md": "results/chaos",
    "results/figures/captions.md": "results/figures",
    "results/mnist_pruning/README.md": "results/mnist_pruning",
    "results/mnist_lenet/README.md": "results/mnist_lenet",
    "results/cifar100_pretrained/README.md": "results/cifar100_pretrained",
    "results/cifar100_last_block/README.md": "results/cifar100_last_block",
    "results/cifar100_vit/README.md": "results/cifar100_vit",
    "results/relaxations/README.md": "results/relaxations",
    "results/vmoe_tokens/README.md": "results/vmoe_tokens",
    "results/vmoe/README.md": "results/vmoe",
    "results/vmoe_clusters/README.md": "results/vmoe_clusters",
    "results/cifar100_pruning/README.md": "results/cifar100_pruning",
    "results/learned_masks/README.md": "results/learned_masks",
    "results/mnist_pruning/table.md": "results/mnist_pruning_table",
    "results/mnist_lenet/table.md": "results/mnist_lenet_table",
    "results/cifar100_pretrained/table.md": "results/cifar100_pretrained_table",
    "results/cifar100_last_block/table.md": "results/cifar100_last_block_table",
    "results/cifar100_vit/table.md": "results/cifar100_vit_table",
    "results/relaxations/table.md": "results/relaxations_table",
    "results/vmoe_tokens/table.md": "results/vmoe_tokens_table",
    "results/vmoe/table.md": "results/vmoe_table",
    "results/vmoe_clusters/table.md": "results/vmoe_clusters_table",
    "results/cifar100_pruning/table.md": "results/cifar100_pruning_table",
    "results/learned_masks/table.md": "results/learned_masks_table",
}
# Parts of these files that are on pages of their own.
PARTS = {
    "map-of-the-repository": "repository",
    "what-does-not-hold-as-the-paper-states-it": "deviations",
    "speed-of-the-solvers": "results/benchmarks",
    "several-slices-several-machines": "how_to/launch",
    "from-the-paper-to-functions-and-tests": "paper",
}


def link_from(path: Path, link: str, page: Path) -> str:
    """What a link in a file becomes on a page that includes the file; all paths are relative to the repository."""
    target, _, part = link.partition("#")
    if "://" in link or not target:
        return link
    name = posixpath.normpath((path.parent / target).as_posix())
    if f"{name}/README.md" in PAGES:
        name = f"{name}/README.md"
    if name in PAGES:
        return f"/{PARTS.get(part, PAGES[name])}.md" + (f"#{part}" if part else "")
    return Path(os.path.relpath(name, page.parent)).as_posix()
