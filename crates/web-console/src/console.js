"use strict";
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

  const replace = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    for (const part of [...template.content.children]) {
      const old = document.getElementById(part.id);
      if (old) old.replaceWith(part);
    }
  };

  const connect = () => {
    const source = new EventSource("/events" + location.pathname.replace(/\/$/, "") + location.search);
    source.onopen = () => show("");
    source.onmessage = (event) => replace(event.data);
    source.onerror = () => {
      alarm ||= setTimeout(() => show("The console does not respond. Values may be old; reconnecting…"), PATIENCE_MS);
      // Browsers connect again by themselves, except after a refusal.
      if (source.readyState === EventSource.CLOSED) setTimeout(connect, RETRY_MS);
    };
  };
  connect();
})();
