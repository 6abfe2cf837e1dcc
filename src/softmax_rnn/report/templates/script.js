"use strict";
// What a page does: light and dark, sorting and filtering of tables, copies and downloads, drawing of charts.
(() => {
  const root = document.documentElement;
  const darkSystem = matchMedia("(prefers-color-scheme: dark)");
  const views = new Map();

  root.classList.add("scripted");
  try {
    const kept = localStorage.getItem("softmax-rnn-theme");
    if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  } catch { /* A browser that keeps nothing still shows the page. */ }

  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : darkSystem.matches);

  function showTheme() {
    document.querySelector("[data-action=theme]").textContent = isDark() ? "Light theme" : "Dark theme";
  }

  function toggleTheme() {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("softmax-rnn-theme", root.dataset.theme);
    } catch { /* As above. */ }
    showTheme();
  }

  function say(text) {
    document.getElementById("Live").textContent = text;
  }

  // Numbers by their full value, before text; cells without a place in the order come last, in both directions.
  function compare(a, b, direction) {
    const empty = (cell) => cell.dataset.sort === undefined && ["", "–", "nan"].includes(cell.textContent);
    if (empty(a) || empty(b)) return empty(a) - empty(b);
    const [x, y] = [a, b].map((cell) => cell.dataset.sort);
    if (x !== undefined && y !== undefined) return direction * (x === y ? 0 : Number(x) - Number(y));
    if (x !== undefined || y !== undefined) return direction * (x === undefined ? 1 : -1);
    return direction * a.textContent.localeCompare(b.textContent, undefined, { numeric: true });
  }

  function sort(button) {
    const head = button.closest("th");
    const body = head.closest("table").tBodies[0];
    const next = { none: "ascending", ascending: "descending", descending: "none" }[head.getAttribute("aria-sort")];
    for (const other of head.parentNode.cells) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", next);
    const column = head.cellIndex;
    const direction = next === "descending" ? -1 : 1;
    const byPlace = (a, b) => a.dataset.place - b.dataset.place;
    const byCell = (a, b) => compare(a.cells[column], b.cells[column], direction) || byPlace(a, b);
    body.append(...[...body.rows].sort(next === "none" ? byPlace : byCell));
  }

  function filter(control) {
    const table = control.closest(".table");
    const rows = [...table.querySelector("tbody").rows];
    const wanted = (table.querySelector("[data-action=filter]")?.value ?? "").trim().toLowerCase();
    const choices = [...table.querySelectorAll("[data-action=select]")].filter((select) => select.value);
    for (const row of rows) {
      const matches = [...row.cells].some((cell) => cell.textContent.toLowerCase().includes(wanted));
      const chosen = choices.every((select) => `=${row.cells[select.dataset.column].textContent}` === select.value);
      row.hidden = !(chosen && matches);
    }
    const shown = rows.filter((row) => !row.hidden).length;
    table.querySelector(".count").textContent = `${shown === rows.length ? "" : `${shown} of `}${rows.length} row${rows.length === 1 ? "" : "s"}`;
  }

  function download(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // The rows that are shown, in the order in which they are shown.
  function downloadTable(button) {
    const table = button.closest(".table");
    const rows = [...table.querySelectorAll("tr")].filter((row) => !row.hidden);
    download(`${table.id}.csv`, "text/csv;charset=utf-8", rows.map((row) => `${row.dataset.csv}\n`).join(""));
  }

  async function copy(button) {
    const code = button.closest(".command").querySelector("code");
    let copied = true;
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      getSelection().selectAllChildren(code);
      copied = document.execCommand("copy");
    }
    button.textContent = copied ? "Copied" : "Press Ctrl+C";
    say(button.textContent);
    setTimeout(() => (button.textContent = "Copy"), 2000);
  }

  // A figure of its own knows no variables of the page: their colours are written in.
  async function downloadChart(button) {
    const { id } = button.closest(".chart");
    const style = getComputedStyle(root);
    const svg = await views.get(id).toSVG();
    download(`${id}.svg`, "image/svg+xml", svg.replace(/var\((--[\w-]+)\)/g, (_, name) => style.getPropertyValue(name).trim()));
  }

  // Only text: no key of a record has a meaning of its own.
  function tooltip(values, escape) {
    const line = ([key, value]) => `<tr><td class="key">${escape(key)}</td><td>${escape(value)}</td></tr>`;
    return `<table>${Object.entries(values).map(line).join("")}</table>`;
  }

  // Panels side by side, as many as there is room for, and as wide as the room allows.
  function fit(spec, width) {
    const setting = (spec.params ?? []).find((param) => param.name === "page_width");
    if (setting) setting.value = width;
    if (spec.facet === undefined || spec.columns === undefined) return;
    const room = Math.max(1, Math.floor(width / (spec.spec.width + 60)));
    const columns = room >= spec.columns ? spec.columns : Math.ceil(spec.columns / Math.ceil(spec.columns / room));
    spec.columns = columns;
    spec.spec.width = Math.max(160, Math.floor((width - 60) / columns) - 34);
  }

  async function draw(plot, { config, specs }) {
    const spec = structuredClone(specs[plot.dataset.spec]);
    plot.style.minWidth = `${spec.usermeta?.min_width ?? 0}px`;
    const width = plot.clientWidth;
    fit(spec, width);
    const narrow = structuredClone(config);
    narrow.axis.labelLimit = Math.min(config.axis.labelLimit, 0.42 * width);
    narrow.axis.titleLimit = Math.min(config.axis.titleLimit, width - 80);
    narrow.legend.labelLimit = Math.min(config.legend.labelLimit, width - 60);
    const target = document.createElement("div");
    target.className = "target";
    plot.replaceChildren(target);
    try {
      const options = { config: narrow, renderer: "svg", actions: false, ast: true, defaultStyle: false };
      const tooltips = { disableDefaultStyle: true, theme: "page", formatTooltip: tooltip };
      const { view } = await vegaEmbed(target, spec, { ...options, tooltip: tooltips });
      views.set(plot.dataset.spec, view);
      plot.dataset.width = width;
    } catch (error) {
      console.error(error);
      plot.replaceChildren(Object.assign(document.createElement("p"), { className: "failed" }));
      plot.firstChild.textContent = "This chart could not be drawn. Its data stand below.";
    }
  }

  function drawAll() {
    const embedded = document.getElementById("Specs");
    if (!embedded) return;
    const all = JSON.parse(embedded.textContent);
    const plots = [...document.querySelectorAll(".plot")];
    Promise.all(plots.map((plot) => draw(plot, all))).then(() => root.classList.add("drawn"));
    let waiting;
    addEventListener("resize", () => {
      clearTimeout(waiting);
      const changed = () => plots.filter((plot) => plot.clientWidth !== Number(plot.dataset.width));
      waiting = setTimeout(() => changed().forEach((plot) => draw(plot, all)), 200);
    });
  }

  const actions = { theme: toggleTheme, sort, csv: downloadTable, copy, svg: downloadChart };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-action]");
    if (button) actions[button.dataset.action](button);
  });
  document.addEventListener("input", (event) => {
    if (event.target.matches("[data-action=filter], [data-action=select]")) filter(event.target);
  });
  document.addEventListener("DOMContentLoaded", () => {
    for (const body of document.querySelectorAll("tbody")) [...body.rows].forEach((row, place) => (row.dataset.place = place));
    darkSystem.addEventListener("change", showTheme);
    showTheme();
    drawAll();
  });
})();
