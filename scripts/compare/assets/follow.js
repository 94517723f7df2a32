// A page that is served while runs go on: it asks its server whether there is a newer one, and opens that in the same state.

const SECONDS_BETWEEN = 2;

function startFollowing() {
  const text = element("output", { id: "followed" }, `as of ${DATA.made}`);
  const box = checkbox("follow", "follow the runs", true, () => {});
  byId("following").append(box.label, text);
  setInterval(async () => {
    if (!box.node.checked) return;
    try {
      const version = await (await fetch("version", { cache: "no-store" })).text();
      if (version === DATA.version) return;
      writeState();
      location.reload();
    } catch {
      text.textContent = `as of ${DATA.made}; its server has ended`;
    }
  }, 1000 * SECONDS_BETWEEN);
}
