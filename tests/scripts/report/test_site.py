"""What is published of the results: the page, and the files that it links to, where its links find them."""

import pytest

from experiments.core.errors import UsageError
from scripts.report.site import copy


@pytest.fixture
def root(tmp_path):
    """A page that links to a file beside it, to one above, to a section, and elsewhere."""
    (tmp_path / "results" / "my figures").mkdir(parents=True)
    (tmp_path / "results" / "my figures" / "a.png").write_text("figure")
    (tmp_path / "config.py").write_text("config")
    links = ("my%20figures/a.png", "../config.py#line", "#claims", "https://example.org/paper")
    (tmp_path / "results" / "index.html").write_text("".join(f'<a href="{link}">there</a>' for link in links))
    return tmp_path


def test_a_page_is_copied_with_all_that_it_links_to(root):
    copied = copy(root / "results" / "index.html", root, root / "out")
    assert [path.as_posix() for path in copied] == ["results/index.html", "results/my figures/a.png", "config.py"]
    assert (root / "out" / "config.py").read_text() == "config"
    assert (root / "out" / "results" / "my figures" / "a.png").read_text() == "figure"


@pytest.mark.parametrize("link", ["gone.png", "../../outside.txt"])
def test_a_link_that_leads_nowhere_is_named(root, link):
    (root.parent / "outside.txt").write_text("another's")
    (root / "results" / "index.html").write_text(f'<a href="{link}">there</a>')
    with pytest.raises(UsageError, match=link.rpartition("/")[2]):
        copy(root / "results" / "index.html", root, root / "out")


def test_without_a_page_there_is_nothing_to_publish(tmp_path):
    with pytest.raises(UsageError, match="make report"):
        copy(tmp_path / "index.html", tmp_path, tmp_path / "out")
