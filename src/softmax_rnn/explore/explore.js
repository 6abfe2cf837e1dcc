import "./charts.js";
// Draws the charts of the page: whatever has data-chart, as soon as it is there and has a width.
(() => {
  const config = JSON.parse(document.getElementById("chart-config").textContent);
  const drawn = new WeakMap();

  function fit(spec, width) {
    const narrowest = spec.usermeta?.min_width ?? 0;
    if (spec.width === "container") spec.width = Math.max(width - 12, narrowest, 160);
    for (const one of spec.params ?? []) if (one.name === "page_width") one.value = width;
    return spec;
  }

  // Charts with a parameter "now" mark the place that the page shows.
  function mark(plot) {
    const now = document.querySelector("[data-now]")?.dataset.now;
    const { view, marked } = drawn.get(plot) ?? {};
    if (now && view && marked && view.signal("now") !== Number(now)) view.signal("now", Number(now)).runAsync();
  }

  async function draw(plot) {
    const width = plot.clientWidth;
    const text = plot.dataset.chart;
    const before = drawn.get(plot);
    if (!width || !window.vegaEmbed || (before && before.text === text && before.width === width)) return;
    const spec = fit(JSON.parse(text), width);
    drawn.set(plot, { text, width, marked: spec.params?.some((one) => one.name === "now") });
    const options = { config, renderer: "svg", actions: false, ast: true, defaultStyle: false };
    spec.autosize = { type: "fit-x", contains: "padding" };
    try {
      const target = document.createElement("div");
      const { view } = await vegaEmbed(target, spec, options);
      if (before?.view) before.view.finalize();
      drawn.get(plot).view = view;
      mark(plot);
      plot.replaceChildren(target);
      plot.dataset.ready = "yes";
    } catch (error) {
      console.error(error);
      plot.textContent = "This chart could not be drawn.";
    }
  }

  const sizes = new ResizeObserver((changes) => changes.forEach((change) => draw(change.target)));
  const watched = new WeakSet();
  function look() {
    for (const plot of document.querySelectorAll("[data-chart]")) {
      if (!watched.has(plot)) {
        watched.add(plot);
        sizes.observe(plot);
      }
      draw(plot);
      mark(plot);
    }
  }
  new MutationObserver(look).observe(document.documentElement, {
    childList: true, subtree: true, attributes: true, attributeFilter: ["data-chart", "data-now"],
  });
  look();
})();
