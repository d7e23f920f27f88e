// Live updates: once a second, the parts of the page that changed.
"use strict";
(() => {
  const page = document.body.dataset.news;
  let seen = document.body.dataset.seen || "";
  const shown = new Map();
  const status = document.getElementById("connection");
  const say = (text) => { if (status.textContent !== text) status.textContent = text; };

  function update(parts) {
    for (const [id, html] of Object.entries(parts)) {
      const part = document.getElementById(id);
      if (!part || shown.get(id) === html) continue;
      shown.set(id, html);
      // A list that was empty has another page.
      if (part.closest("[hidden]") && html.trim()) { location.reload(); return; }
      const open = [...part.querySelectorAll("details")].map((one) => one.open);
      const checked = [...part.querySelectorAll("input:checked")].map((one) => one.value);
      part.innerHTML = html;
      part.querySelectorAll("details").forEach((one, place) => { one.open = open[place]; });
      part.querySelectorAll("input[type=checkbox]").forEach((one) => { one.checked = checked.includes(one.value); });
    }
  }

  let isLooking = false;
  async function look() {
    if (document.hidden || isLooking) return;
    isLooking = true;
    try {
      const answer = await fetch(page + (page.includes("?") ? "&" : "?") + "seen=" + encodeURIComponent(seen));
      if (answer.status >= 400) {
        say("Not followed any more: the run was removed, or the viewer was restarted (open its new address).");
      } else {
        say("");
        if (answer.status === 200) {
          const news = await answer.json();
          seen = news.seen;
          update(news.parts);
        }
      }
    } catch { say("Not connected; trying again …"); }
    isLooking = false;
  }
  if (page) {
    setInterval(look, 1000);
    document.addEventListener("visibilitychange", look);
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
