"""The page of runs side by side."""

from collections.abc import Sequence

from scripts.compare.contents import Json, contents
from scripts.compare.groups import Group
from scripts.compare.page import page
from scripts.compare.workdirs import Found
from scripts.report.paper import REPORTED


def comparison(found: Found, groups: Sequence[Group], *, after: str = "", followed: Json | None = None) -> str:
    """The page.

    Args:
      found: the runs, and what was left out.
      groups: of these runs.
      after: HTML of the sections after all others.
      followed: of a page that is served while runs go on, its `version` and when it was `made`.
    """
    problems = len(found.problems)
    summary = (
        f"<p>{_counted(len(found.runs), 'run')} in {_counted(len(groups), 'group')}: runs whose configs differ in "
        "nothing but their seeds, and how they are carried out, are one group. Fields that a method does not read do "
        "not count; a value that most of many groups share goes without saying. "
    )
    summary += f'<a href="#problems">{problems} left out</a>.</p>' if problems else "Nothing was left out.</p>"
    data = contents(groups, found.problems, REPORTED) | (followed or {})
    return page("Runs compared", data, summary=summary, after=after)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
