// Live updates: the server sends rendered parts of the page, and rows of its list.
"use strict";
(() => {
  const page = document.body.dataset.events;
  const status = document.getElementById("connection");
  const say = (text) => { if (status.textContent !== text) status.textContent = text; };

  function fromHtml(html) {
    const template = document.createElement("template");
    template.innerHTML = html.trim();
    return template.content.firstElementChild;
  }

  function update(news) {
    for (const [id, html] of Object.entries(news.parts || {})) {
      const part = document.getElementById(id);
      if (!part) continue;
      const open = [...part.querySelectorAll("details")].map((one) => one.open);
      part.innerHTML = html;
      part.querySelectorAll("details").forEach((one, place) => { one.open = open[place]; });
    }
    const list = document.getElementById("rows");
    if (!list) return;
    for (const [id, html] of Object.entries(news.rows || {})) {
      const row = fromHtml(html), old = document.getElementById(id);
      if (!old) { list.append(row); continue; }
      const box = old.querySelector("input:checked");
      if (box) row.querySelector("input").checked = true;
      old.replaceWith(row);
    }
    if (news.order) {
      if (list.closest("[hidden]")) { location.reload(); return; }
      const wanted = new Set(news.order);
      for (const row of [...list.children]) if (!wanted.has(row.id)) row.remove();
      list.append(...news.order.map((id) => document.getElementById(id)).filter(Boolean));
    }
  }

  let events = null;
  function connect() {
    events = new EventSource(page);
    events.onopen = () => say("");
    events.onmessage = (event) => update(JSON.parse(event.data));
    events.onerror = () => {
      // It reconnects by itself unless the server refused it.
      say(events && events.readyState === EventSource.CLOSED
        ? "Not followed any more: the run was removed, or the viewer was restarted (open its new address)."
        : "Not connected; trying again …");
    };
  }
  function disconnect() { if (events) events.close(); events = null; }
  if (page) {
    // Browsers allow six connections to a host: only tabs that are seen have one.
    document.addEventListener("visibilitychange", () => {
      disconnect();
      if (!document.hidden) connect();
    });
    addEventListener("pagehide", disconnect);
    addEventListener("pageshow", () => { if (!events && !document.hidden) connect(); });
    if (!document.hidden) connect();
  }

  const search = document.querySelector("form.search");
  if (search) {
    search.addEventListener("change", () => search.requestSubmit());
    search.addEventListener("submit", () => {
      // Empty fields don't belong in the address.
      for (const field of search.elements) if (field.name && !field.value) field.disabled = true;
    });
  }

  // A link to a trial opens what it is in.
  function openTarget() {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    const folded = target && target.closest("details");
    if (folded) { folded.open = true; target.scrollIntoView({ block: "nearest" }); }
  }
  addEventListener("hashchange", openTarget);
  openTarget();

  // Keys: j and k for the next and previous case.
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    const link = { j: "next", k: "prev" }[event.key];
    const found = link && document.querySelector(`a[rel^="${link}"]`);
    if (found) found.click();
  });
})();
