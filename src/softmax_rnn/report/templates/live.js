"use strict";
// A page that is served while its runs go on: it asks for a newer version, loads it, and stays where the reader is.
(() => {
  const version = document.querySelector("meta[name=live-version]").content;
  const place = "softmax-rnn-place";
  const settled = () => document.documentElement.classList.contains("drawn") || !document.getElementById("Specs");

  // The section at the top of the window and how far it is scrolled; open details; filters, choices and sorting.
  function remember() {
    const sections = [...document.querySelectorAll("main section")];
    const top = sections.findLast((section) => section.getBoundingClientRect().top <= 1);
    const controls = [...document.querySelectorAll("[data-action=filter], [data-action=select]")];
    const sorted = [...document.querySelectorAll("th[aria-sort=ascending], th[aria-sort=descending]")];
    return {
      section: top?.id ?? null,
      offset: top ? top.getBoundingClientRect().top : -scrollY,
      open: [...document.querySelectorAll("details")].map((details) => details.open && details.closest("[id]").id),
      controls: controls.map((one) => [one.closest(".table").id, one.dataset.column ?? null, one.value]),
      sorted: sorted.map((head) => [head.closest(".table").id, head.cellIndex, head.getAttribute("aria-sort")]),
    };
  }

  function restore(kept) {
    for (const details of document.querySelectorAll("details")) {
      details.open = kept.open.includes(details.closest("[id]").id);
    }
    for (const [id, column, value] of kept.controls) {
      const named = column === null ? "[data-action=filter]" : `[data-action=select][data-column="${column}"]`;
      const control = document.getElementById(id)?.querySelector(named);
      if (!control || control.value === value) continue;
      control.value = value;
      control.dispatchEvent(new Event("input", { bubbles: true }));
    }
    for (const [id, index, direction] of kept.sorted) {
      const head = document.getElementById(id)?.querySelector("thead tr").cells[index];
      for (let i = 0; head && head.getAttribute("aria-sort") !== direction && i < 2; i++) head.querySelector("button").click();
    }
    const section = kept.section && document.getElementById(kept.section);
    scrollTo(0, section ? section.getBoundingClientRect().top + scrollY - kept.offset : -kept.offset);
  }

  // Not under the reader's hands: while a chart is pointed at, text is selected or typed.
  function busy() {
    const typing = document.activeElement?.matches("input, select");
    return typing || document.querySelector(".plot:hover") !== null || !getSelection().isCollapsed;
  }

  async function look() {
    let wait = 2000;
    try {
      const answer = await fetch("/version", { cache: "no-store" });
      if (answer.ok && (await answer.text()) !== version && !document.hidden && settled() && !busy()) {
        sessionStorage.setItem(place, JSON.stringify(remember()));
        location.reload();
        return;
      }
    } catch {
      wait = 15000;
    }
    setTimeout(look, wait);
  }

  function begin() {
    if (!settled()) {
      setTimeout(begin, 50);
      return;
    }
    const kept = sessionStorage.getItem(place);
    sessionStorage.removeItem(place);
    if (kept) restore(JSON.parse(kept));
    setTimeout(look, 2000);
  }

  history.scrollRestoration = "manual";
  begin();
})();
