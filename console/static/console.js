// The console's only script of its own: charts (uPlot), times in the reader's zone, the menu on a phone, and `/` for
// the search field. Pages work without it.

const REFRESH_MS = 2000;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function options(figure, names, width) {
  const strokes = [colour("--pico-primary"), colour("--second"), colour("--good")];
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
  return {
    width,
    height: 200,
    legend: { show: false },
    cursor: { y: false },
    scales: { y: { range: (plot, low, high) => [0, Math.max(1, high * 1.1)] } },
    axes: [axis, { ...axis, size: 64 }],
    series: [{}, ...names.map((name, at) => ({ label: name, stroke: strokes[at % 3], width: 1.75, points: { show: false } }))],
  };
}

async function draw(figure, plots) {
  if (document.hidden) return;
  let told;
  try {
    const response = await fetch(figure.dataset.source, { headers: { "hx-request": "true" } });
    if (!response.ok) throw new Error(response.status);
    told = await response.json();
    figure.classList.remove("stale");
  } catch {
    figure.classList.add("stale");
    return;
  }
  const place = figure.querySelector(".plot");
  if (!plots.has(figure)) {
    plots.set(figure, new uPlot(options(figure, told.names, place.clientWidth), told.data, place));
  } else {
    plots.get(figure).setData(told.data);
  }
  const values = told.names.map((name, at) => `${name} ${(told.data[at + 1].at(-1) ?? 0).toLocaleString()}`);
  figure.querySelector(".last").replaceChildren("now ", ...values.map((value, at) => {
    const one = document.createElement("b");
    one.className = `s${at}`;
    one.textContent = value;
    return one;
  }), figure.dataset.unit);
  const title = figure.querySelector("figcaption").textContent;
  place.setAttribute("aria-label", `${title}; now ${values.join(", ")} ${figure.dataset.unit}`);
}

function charts() {
  const plots = new Map();
  const figures = [...document.querySelectorAll("figure.chart")];
  if (!figures.length) return;
  const all = () => figures.forEach((figure) => draw(figure, plots));
  all();
  setInterval(all, REFRESH_MS);
  document.addEventListener("visibilitychange", all);
  new ResizeObserver(() => {
    for (const [figure, plot] of plots) plot.setSize({ width: figure.querySelector(".plot").clientWidth, height: 200 });
  }).observe(document.querySelector("main"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const plot of plots.values()) plot.destroy();
    plots.clear();
    all();
  });
}

function times(root) {
  for (const one of root.querySelectorAll("time[datetime]")) {
    const at = new Date(one.dateTime);
    if (one.title || Number.isNaN(at.getTime())) continue;
    one.title = one.textContent;
    one.textContent = at.toLocaleString();
  }
}

function menu() {
  const one = document.querySelector(".menu");
  if (!one) return;
  const narrow = matchMedia("(max-width: 48rem)");
  const set = () => { one.open = !narrow.matches; };
  set();
  narrow.addEventListener("change", set);
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.closest("input, textarea, select")) return;
  const field = document.querySelector('.search input:not([type="hidden"])');
  if (field) {
    field.focus();
    event.preventDefault();
  }
});
new MutationObserver(() => times(document)).observe(document.body, { childList: true, subtree: true });
times(document);
menu();
charts();
