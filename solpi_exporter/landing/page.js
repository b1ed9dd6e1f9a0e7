"use strict";

const SECONDS = 5;

async function read() {
  const answer = await fetch("", { cache: "no-store", signal: AbortSignal.timeout(SECONDS * 1000) });
  if (!answer.ok) throw new Error(answer.statusText);
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

async function refresh() {
  try {
    if (!document.hidden) document.querySelector("main").replaceWith((await read()).querySelector("main"));
    document.body.classList.remove("unanswered");
  } catch {
    document.body.classList.add("unanswered");
  }
  setTimeout(refresh, SECONDS * 1000);
}

setTimeout(refresh, SECONDS * 1000);
