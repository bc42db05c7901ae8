// Says when the page has lost its server. Everything else is HTML that the server sends.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const lost = document.getElementById("disconnected");
  document.body.addEventListener("htmx:sseError", () => { lost.hidden = false; });
  document.body.addEventListener("htmx:sseOpen", () => { lost.hidden = true; });
});
