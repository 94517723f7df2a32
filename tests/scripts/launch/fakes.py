#!/usr/bin/env python3
"""gcloud, xpk, kubectl, sbatch, srun and curl for tests: they record their arguments, act on a small world in
$FAKE_WORLD, and fail when told to (`World.plan`).

A "TPU" has a home directory for each worker, in which the real commands are run by the real shell. Its Python, which
the real install.sh makes by a fake uv, is this machine's, except that `-m experiments.NAME` is `_train` below.
"""

import json
import os
import re
import shlex
import signal
import sys
import time
from pathlib import Path

# A test starts dozens of these. So what few of them need is imported where it is needed, and they run this file as a
# module, which Python keeps compiled.
START = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import fakes; fakes.main()"

PROGRAMS = ("gcloud", "xpk", "kubectl", "sbatch", "srun")
# What every worker runs for its environment: shell, which starts sooner than Python.
CURL = """#!/usr/bin/env bash
echo '["curl"]' >> "$FAKE_WORLD/calls.jsonl"
echo 'mkdir -p "$UV_UNMANAGED_INSTALL" && cp "$(command -v uv)" "$UV_UNMANAGED_INSTALL/uv"'
"""
UV = """#!/usr/bin/env bash
echo '["uv"]' >> "$FAKE_WORLD/calls.jsonl"
if [[ $1 == venv ]]; then
    mkdir -p .venv/bin
    cp "$FAKE_WORLD/python" .venv/bin/python
fi
"""
PYTHON = f"""#!/usr/bin/env bash
if [[ $2 == experiments.* ]]; then exec {sys.executable} -IS -c {shlex.quote(START)} train "$@"; fi
exec {sys.executable} -S "$@"
"""


class World:
    """What the fakes know; the tests use it, too."""

    def __init__(self, path):
        self.path = Path(path)

    def make(self):
        """Creates it, with the programs; returns the directory of the latter."""
        programs = self.path / "bin"
        programs.mkdir(parents=True)
        scripts = {
            name: f'#!/usr/bin/env bash\nexec {sys.executable} -IS -c {shlex.quote(START)} {name} "$@"\n'
            for name in PROGRAMS
        }
        scripts |= {"curl": CURL, "uv": UV, "../python": PYTHON}
        for name, script in scripts.items():
            (programs / name).write_text(script)
            (programs / name).chmod(0o755)
        for name in ("plans", "things"):
            (self.path / name).mkdir()
        return programs

    def record(self, kind, entry):
        with (self.path / f"{kind}.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def recorded(self, kind):
        path = self.path / f"{kind}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def plan(self, event, *outcomes):
        """Has the next occurrences of `event` end otherwise than well."""
        for number, outcome in enumerate(outcomes):
            (self.path / "plans" / f"{event}.{number:03d}").write_text(json.dumps(outcome))

    def next(self, event):
        """Takes the first outcome planned for `event`: programs that run at the same time never take the same one."""
        for path in sorted((self.path / "plans").glob(f"{event}.*")):
            taken = self.path / "plans" / f"taken.{os.getpid()}.{path.name}"
            try:
                path.rename(taken)
            except FileNotFoundError:
                continue  # another program was first
            return json.loads(taken.read_text())
        return None

    def thing(self, name):
        path = self.path / "things" / f"{name}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def put(self, name, value):
        path = self.path / "things" / f"{name}.json"
        if value is None:
            path.unlink()
        else:  # at once: another program may read it meanwhile
            written = path.with_suffix(f".{os.getpid()}")
            written.write_text(json.dumps(value))
            written.replace(path)

    def home(self, tpu, worker):
        path = self.path / "homes" / f"{tpu}-{worker}"
        path.mkdir(parents=True, exist_ok=True)
        return path


def flag(arguments, name, default=None):
    return next((a.split("=", 1)[1] for a in arguments if a.startswith(f"--{name}=")), default)


def fail(message, status=1):
    print(message, file=sys.stderr)
    sys.exit(status)


def gcloud(world, arguments):
    kind, verb, name, *rest = arguments[2:]
    failed = None  # the state of a queued resource that will not lead to a TPU
    if outcome := world.next(f"{kind}-{verb}"):
        if outcome == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if isinstance(outcome, str):
            fail(outcome)
        failed = outcome
    thing = world.thing(f"{kind}-{name}")
    if verb in ("describe", "delete") and thing is None:
        fail(f"ERROR: (gcloud.compute.tpus.{kind}.{verb}) NOT_FOUND: Resource 'projects/p/nodes/{name}' was not found")
    if verb == "describe":
        print(json.dumps(thing))
    elif verb == "delete":
        world.put(f"{kind}-{name}", None)
        if kind == "queued-resources" and world.thing(f"tpu-vm-{name}"):
            world.put(f"tpu-vm-{name}", None)
    elif verb == "create":
        type_ = flag(rest, "accelerator-type")
        node = {"acceleratorType": type_, "state": "READY", "networkEndpoints": [{}] * (int(type_.split("-")[1]) // 4)}
        if not failed:
            world.put(f"tpu-vm-{flag(rest, 'node-id', name)}", node)
        if kind == "queued-resources":
            nodes = [{"nodeId": name, "node": {"acceleratorType": type_}}]
            world.put(f"{kind}-{name}", {"state": failed or {"state": "ACTIVE"}, "tpu": {"nodeSpec": nodes}})
    elif verb == "scp":
        import shutil

        target, path = rest[0].split(":")
        shutil.copy(name, world.home(target, flag(rest, "worker")) / path)
    elif verb == "ssh":
        ssh(world, name, flag(rest, "worker"), flag(rest, "command"))


def ssh(world, name, worker, command):
    import shutil
    import subprocess
    import threading

    home = world.home(name, worker)
    outcome = world.next(f"ssh-{worker}") if "scripts.launch.worker -- " in command else None
    variables = os.environ | {"HOME": str(home), "FAKE_WORKER": worker, "FAKE_TPU": name}
    if outcome == "preempt":  # before it has trained anything, however late it is noticed here
        variables["FAKE_TRAINING"] = "hang"
    process = subprocess.Popen(
        ["bash", "-c", command],
        cwd=home,
        env=variables,
        stdout=subprocess.PIPE,  # what is there does not hold what is here
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    listener = threading.Thread(target=lambda: [os.write(1, line) for line in process.stdout], daemon=True)
    listener.start()
    if outcome == "drop":  # the connection is gone, and what it ran is still there
        while not (home / "hangs").exists():
            time.sleep(0.02)
        fail("Connection to 10.0.0.1 closed by remote host.", 255)
    if outcome == "preempt":
        for kind, state in (("tpu-vm", "PREEMPTED"), ("queued-resources", {"state": "SUSPENDED"})):
            if thing := world.thing(f"{kind}-{name}"):
                world.put(f"{kind}-{name}", thing | {"state": state})
        while not (home / "sparse-topk" / "running.json").exists():
            time.sleep(0.02)
        record = json.loads((home / "sparse-topk" / "running.json").read_text())
        os.killpg(process.pid, signal.SIGKILL)
        os.killpg(record["pid"], signal.SIGKILL)
        shutil.rmtree(home)
        fail("ERROR: (gcloud.compute.tpus.tpu-vm.ssh) the TPU was preempted", 255)
    listener.join()
    status = process.wait()
    sys.exit(128 - status if status < 0 else status)


def train(world, arguments):
    """In the stead of a training command."""
    worker = os.environ.get("FAKE_WORKER", "0")
    world.record("trained", {"worker": worker, "arguments": arguments})
    print(f"training on worker {worker}", flush=True)
    outcome = os.environ.get("FAKE_TRAINING") or world.next(f"train-{worker}") or ("wait" if worker != "0" else None)
    workdir = flag(arguments, "workdir")
    if isinstance(outcome, dict):  # so far, and no further
        write(workdir, "metrics.jsonl", rows(outcome["rows"]))
        fail(outcome["error"], outcome["status"])
    if outcome in ("hang", "wait"):
        signal.signal(signal.SIGTERM, lambda *_: (world.record("terminated", worker), sys.exit(0)))
        (Path.home() / "hangs").touch()
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline and (outcome == "hang" or not exists(workdir, "summary.json")):
            time.sleep(0.05)
        return
    write(workdir, "config.json", json.dumps({"epochs": 4}))
    write(workdir, "metrics.jsonl", rows(4))
    write(workdir, "summary.json", json.dumps({"state": "done"}))


def rows(number):
    return "".join(json.dumps({"epoch": epoch, "step": epoch}) + "\n" for epoch in range(number + 1))


def write(workdir, name, content):
    if not workdir.startswith("gs://"):
        Path(workdir).mkdir(parents=True, exist_ok=True)
        (Path(workdir) / name).write_text(content)
        return
    import urllib.parse  # these take longer to import than all the rest, and few of the fakes need them
    import urllib.request

    bucket, path = workdir.removeprefix("gs://").split("/", 1)
    server = f"{os.environ['STORAGE_EMULATOR_HOST']}/upload/storage/v1/b/{bucket}/o?uploadType=media&name="
    urllib.request.urlopen(server + urllib.parse.quote(f"{path}/{name}", safe=""), content.encode()).close()


def exists(workdir, name):
    if not workdir.startswith("gs://"):
        return (Path(workdir) / name).exists()
    import urllib.error
    import urllib.parse
    import urllib.request

    bucket, path = workdir.removeprefix("gs://").split("/", 1)
    server = f"{os.environ['STORAGE_EMULATOR_HOST']}/storage/v1/b/{bucket}/o/"
    try:
        urllib.request.urlopen(server + urllib.parse.quote(f"{path}/{name}", safe="")).close()
    except urllib.error.HTTPError:
        return False
    return True


def xpk(world, arguments):
    import shutil
    import subprocess

    verb = arguments[1]
    if outcome := world.next(f"xpk-{verb}"):
        print(outcome["says"])
        sys.exit(outcome["status"])
    if verb == "create":
        name = flag(arguments, "workload")
        if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name) or len(name) > 28 or world.thing(name):
            fail(f"[XPK] {name} cannot be", 1)
        world.put(name, {"command": flag(arguments, "command"), "directory": flag(arguments, "script-dir")})
        return
    name = flag(arguments, "wait-for-job-completion")
    workload = world.thing(name)
    if workload is None:
        print(f"[XPK] Workload named {name} does not exist.")
        sys.exit(1)
    # As Kubernetes and xpk do; the image is a copy of the directory.
    command = re.sub(r"\$\$", "$", workload["command"])
    image = world.home(name, "image")
    shutil.copytree(workload["directory"], image, dirs_exist_ok=True)
    done = subprocess.run(
        ["bash", "-c", f"({command}) & wait $!"],
        cwd=image,
        env=os.environ | {"HOME": str(image)},
        capture_output=True,
        text=True,
    )
    world.put(name, workload | {"logs": done.stdout + done.stderr, "status": done.returncode})
    print(f"[XPK] Your workload finished with status: {'Completed' if done.returncode == 0 else 'Failed'}")
    sys.exit(125 if done.returncode else 0)


def kubectl(world, arguments):
    thing = world.thing(flag(arguments, "selector").split("=")[1])
    # Of the pod that failed, and of another, which was ended for that.
    print(thing["logs"] if arguments[0] == "logs" else f"{thing['status']} 143")


def sbatch(world, arguments):
    import subprocess

    outcome = world.next("sbatch")
    if outcome:
        fail(outcome)
    print("Submitted batch job 17", flush=True)
    script = next(index for index, argument in enumerate(arguments) if not argument.startswith("--"))
    with open(flag(arguments, "output").replace("%%", "%"), "a") as log:
        done = subprocess.run(["bash", *arguments[script:]], cwd=flag(arguments, "chdir"), stdout=log, stderr=log)
    sys.exit(done.returncode)


def srun(world, arguments):
    import subprocess

    program = next(index for index, argument in enumerate(arguments) if not argument.startswith("--"))
    training = arguments[program + 1 :]
    command = [sys.executable, "-IS", "-c", START, "train", *training]
    done = subprocess.run(command, capture_output=True, text=True)
    for line in (done.stdout + done.stderr).splitlines():
        print(f"0: {line}", flush=True)
    if done.returncode:
        print(f"srun: error: node1: task 0: Exited with exit code {done.returncode}", flush=True)
    sys.exit(done.returncode)


def main():
    """What one of the programs does, by its name and arguments on the command line."""
    program, *given = sys.argv[1:]
    here = World(os.environ["FAKE_WORLD"])
    if program not in ("train", "srun"):
        here.record("calls", [program, *given])
    globals()[program](here, given)
