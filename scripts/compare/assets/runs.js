// Where runs come from and how they ended, and what was left out.

let drawRuns;

function startRuns() {
  const draw = dataTable("runs", "Commit, device, versions, duration and state of every run");
  const versions = (run) => Object.entries(run.versions).filter(([, version]) => version).map((pair) => pair.join(" ")).join(", ") || null;
  const overrides = (run) => Object.entries(run.overrides).map(([name, value]) => `--config.${name}=${value}`).join(" ") || null;
  drawRuns = () => draw([
    { name: "run", value: (run) => run.name },
    { name: "state", value: (run) => run.state },
    ...(DATA.runs.some((run) => run.reason) ? [{ name: "last error", long: true, value: (run) => run.reason || null }] : []),
    { name: "diverged", value: (run) => run.diverged, show: (run) => `${run.diverged} of ${run.seeds.length} seeds` },
    { name: "steps", number: true, value: (run) => run.steps },
    { name: "training time", number: true, value: (run) => run.seconds, show: (run) => duration(run.seconds) },
    { name: "started", unusual: true, value: (run) => run.started },
    { name: "resumed", unusual: true, number: true, value: (run) => run.resumed, show: (run) => run.resumed === null ? "-" : `${run.resumed} times` },
    { name: "commit", value: (run) => run.commit, show: (run) => run.commit && element("code", {}, run.commit.slice(0, 10) + (run.dirty ? " and changes" : "")) },
    { name: "device", value: (run) => run.device, show: (run) => run.device && `${run.devices} × ${run.device}${run.machine ? ` (${run.machine})` : ""}` },
    { name: "versions", unusual: true, long: true, value: versions },
    { name: "command", unusual: true, long: true, value: (run) => run.command, show: (run) => run.command && element("code", {}, run.command) },
    { name: "overrides", unusual: true, long: true, value: overrides, show: (run) => overrides(run) && element("code", {}, overrides(run)) },
  ], DATA.runs);
  drawRuns();
  byId("problems").hidden = !DATA.problems.length;
  dataTable("problems", "Workdirs left out, and why")([
    { name: "workdir", value: (problem) => problem.name }, { name: "reason", long: true, value: (problem) => problem.reason },
  ], DATA.problems);
}

function duration(seconds) {
  if (seconds < 60) return `${digits(seconds, 3)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
