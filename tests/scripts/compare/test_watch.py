"""The page that follows runs: it is made anew when rows come, opens anew by itself, and its server ends on Ctrl-C."""

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from experiments.core.record.workdir import Workdir
from scripts.compare.__main__ import main
from tests.scripts.browser import Seen
from tests.scripts.compare.looking import lines
from tests.scripts.workdirs import write_workdir


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """A directory without a run."""
    return tmp_path_factory.mktemp("followed")


@pytest.fixture(scope="module")
def running(followed, signals_count):
    """A server that follows it; at the end it has ended cleanly."""
    command = [sys.executable, "-m", "scripts.compare", str(followed), "--watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield re.match(r"(http://127.0.0.1:\d+/) until Ctrl-C\n", process.stdout.readline())[1]
            os.kill(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    assert said.endswith("ended\n")
    assert "Traceback" not in said


def test_a_page_follows_a_run_that_goes_on_and_keeps_its_state(running, browser, followed):
    page, seen = browser.new_page(), Seen()
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("request", lambda request: seen.requests.append(request.url))
    page.goto(running)
    assert page.inner_text("#problems-table td") == "holds no run"
    write_workdir(followed / "elsewhere", [[90.0, 88.0], [20.0, 19.0], [9.0, 8.0], [7.0, 8.0]])
    workdir = Workdir(followed / "elsewhere")
    workdir.summary.unlink()
    rows = workdir.metrics.read_text().splitlines(keepends=True)
    workdir.metrics.write_text("".join(rows[:2]))
    page.wait_for_selector("#curves-plot .main-svg")
    page.select_option("#axis", "epoch")
    assert lines(page)[0][1][:2] == [0, 1]
    workdir.metrics.write_text("".join(rows))
    page.wait_for_selector("#runs-table >> text=at epoch 3 of 3")
    assert lines(page)[0][1] == [0, 1, 2, 3]
    assert page.input_value("#axis") == "epoch"
    assert seen.wrong(running) == []
    page.close()


def test_the_server_answers_no_other_site_and_has_no_other_file(running):
    url = running
    assert len(urllib.request.urlopen(f"{url}version").read()) == 64
    for request, status in (
        (urllib.request.Request(url, headers={"Host": "example.org"}), 403),
        (f"{url}config.json", 404),
    ):
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(request)
        assert error.value.code == status
        error.value.close()


def test_a_port_that_cannot_be_had_is_a_mistake_in_one_line(tmp_path, capsys):
    assert main([str(tmp_path), "--watch", "--port=70000"]) == 2
    assert "error: --port=70000 cannot be listened at" in capsys.readouterr().err
