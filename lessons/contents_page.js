"use strict";
// On the page of contents: how many of a lesson's questions are locked in this browser.

for (const item of document.querySelectorAll("li")) {
  let kept = {};
  try {
    kept = JSON.parse(localStorage.getItem(`lockstep: ${item.dataset.title}`)) ?? {};
  } catch {
    // This browser keeps nothing.
  }
  const locked = Object.keys(kept).length;
  if (locked > 0) item.querySelector(".state").textContent = `· ${locked} of ${item.dataset.asks} questions locked`;
}
