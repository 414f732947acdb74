"use strict";
// A visitor with a keyboard stays on the link, or on what takes its place.
const keepFocus = (part, change) => {
  const controls = () => [...part.querySelectorAll("a[href], button, input, select, summary, [tabindex]")];
  const focused = document.activeElement;
  const place = controls().indexOf(focused);
  change();
  if (place < 0) return;
  const target = focused.getAttribute("href");
  const same = target && controls().find((each) => each.getAttribute("href") === target);
  (same || controls()[place])?.focus({ preventScroll: true });
};

// Replaces elements by the fragments with the same ids.
const replace = (html) => {
  const template = document.createElement("template");
  template.innerHTML = html;
  for (const part of [...template.content.children]) {
    const old = document.getElementById(part.id);
    // Assistive technology announces changes only inside an element that stays.
    if (old) keepFocus(old, () => old.replaceChildren(...part.childNodes));
  }
};

// Replaces the live parts of a page by the fragments that the console sends. Without this script, the page reloads.
(() => {
  const banner = document.getElementById("connection");
  if (!banner || !document.querySelector("[data-live]")) return;

  // A short gap, as at the end of a stream, is no news.
  const PATIENCE_MS = 2500;
  const RETRY_MS = 5000;
  let alarm = 0;

  const show = (text) => {
    clearTimeout(alarm);
    alarm = 0;
    banner.textContent = text;
    banner.hidden = !text;
  };

  let source = null;

  const connect = () => {
    const opened = new EventSource("/events" + location.pathname.replace(/\/$/, "") + location.search);
    source = opened;
    opened.onopen = () => show("");
    opened.onmessage = (event) => replace(event.data);
    opened.onerror = () => {
      alarm ||= setTimeout(() => show("The console does not respond. Values may be old; reconnecting…"), PATIENCE_MS);
      // Browsers connect again by themselves, except after a refusal.
      if (opened.readyState === EventSource.CLOSED) setTimeout(() => { if (opened === source) connect(); }, RETRY_MS);
    };
  };

  // Browsers open few connections to a host: hidden tabs leave them to others.
  const follow = () => {
    source?.close();
    source = null;
    if (!document.hidden) connect();
  };
  document.addEventListener("visibilitychange", follow);
  follow();
})();

// Follows a search in a game, and goes to the next position. Without this script, the browser loads the page that waits.
(() => {
  const search = document.querySelector("[data-events]");
  if (!search) return;
  const RETRY_MS = 2000;
  const source = new EventSource(search.dataset.events);
  source.onmessage = (event) => replace(event.data);
  // The position without an answer is no place to go back to.
  source.addEventListener("moved", (event) => { source.close(); location.replace(event.data); });
  source.addEventListener("shown", (event) => { source.close(); replace(event.data); });
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) setTimeout(() => location.replace(search.dataset.answer), RETRY_MS);
  };
})();

// Moves to a ply when the pointer releases the slider. Keys have the button, as a new page would lose the focus.
document.querySelector("[data-submit]")?.addEventListener("pointerup", (event) => event.target.form.submit());
