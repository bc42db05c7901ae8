// What the page does beyond HTML: it asks for what has changed while it is visible, and draws charts.
"use strict";

// Themes
const root = document.documentElement;
const stored = (() => { try { return localStorage.getItem("theme"); } catch { return null; } })();
if (stored) root.dataset.theme = stored;
const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

// What moves
const ASK_MS = 500, SHARE = 10;
let screenName = "", timer = 0, isAsking = false;

function morph(main, html) {
  Idiomorph.morph(main, html, {
    morphStyle: "innerHTML",
    ignoreActiveValue: true,
    callbacks: {
      beforeNodeMorphed: (old, fresh) => {
        if (old.nodeType !== 1) return true;
        if (old.dataset.own || (old.id && old.tagName === "FORM")) return false;
        if (old.classList.contains("plot") && fresh.classList && fresh.classList.contains("plot")) {
          for (const name of ["plot", "marks", "zoom"]) if (fresh.dataset[name] !== undefined) old.dataset[name] = fresh.dataset[name];
          old.querySelector("figcaption").innerHTML = fresh.querySelector("figcaption").innerHTML;
          return false;
        }
        return true;
      },
      beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS"),
    },
  });
}

function say(status) {
  const element = document.getElementById("status");
  if (!element) return;
  element.dataset.live = status.live ? "yes" : "no";
  const at = status.as_of ? `as of ${new Date(status.as_of).toISOString().slice(11, 19)}, ` : "";
  document.getElementById("status-words").textContent = at + status.words;
}

async function ask() {
  clearTimeout(timer);
  if (document.hidden || isAsking) return;
  isAsking = true;
  let wait = ASK_MS;
  const lost = document.getElementById("disconnected");
  try {
    const answer = await fetch(location.href, {headers: {"x-pyspark-log-known": screenName}, cache: "no-store"});
    if (!(answer.headers.get("content-type") || "").startsWith("application/json")) throw new Error("no answer");
    const found = await answer.json(), begun = performance.now();
    lost.hidden = true;
    say(found.status);
    screenName = found.screen;
    if (found.html === null) relative();
    else {
      morph(document.getElementById("content"), found.html);
      refresh();
    }
    // However much there is to draw, it takes a tenth of the time at most.
    wait = Math.max(wait, SHARE * (performance.now() - begun));
  } catch {
    lost.hidden = false;
    screenName = "";
  }
  isAsking = false;
  timer = setTimeout(ask, wait);
}

// Times
const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
function ago(seconds) {
  const past = Math.max(0, Math.round(seconds));
  const [unit, length] = UNITS.find(each => past >= each[1]) || UNITS[3];
  return `${Math.floor(past / length)} ${unit} ago`;
}
function relative() {
  const now = Date.now();
  for (const each of document.querySelectorAll("time[data-ms]")) {
    const ms = Number(each.dataset.ms), text = now - ms < 86400e3 * 30 && ms - now < 60e3 ? ago((now - ms) / 1000) : each.title.slice(0, 19);
    if (each.textContent !== text) each.textContent = text;
  }
}

// Charts
const plots = new Map();
const probe = document.createElement("span");
function resolved(name) {
  probe.style.color = `var(${name})`;
  if (!probe.isConnected) document.body.append(probe);
  return getComputedStyle(probe).color;
}
const SERIES = ["--series1", "--series2", "--series3", "--series4", "--series5", "--series6"];
const SIZES = ["B", "kB", "MB", "GB", "TB", "PB"];
function short(value) {
  return value >= 1e9 ? `${+(value / 1e9).toPrecision(3)}G` : value >= 1e6 ? `${+(value / 1e6).toPrecision(3)}M` : value >= 1e3 ? `${+(value / 1e3).toPrecision(3)}k` : `${+value.toPrecision(3)}`;
}
function shown(value, unit) {
  if (value === null || value === undefined) return "not known";
  if (unit === "bytes") {
    let place = 0;
    while (value >= 1000 && place < SIZES.length - 1) { value /= 1000; place++; }
    return `${+value.toPrecision(3)} ${SIZES[place]}/s`;
  }
  return short(value) + (unit === "rate" ? "/s" : unit === "seconds" ? " s" : "");
}
function zoomed(figure, from, to) {
  const zoom = figure.dataset.zoom;
  if (!zoom) return;
  const iso = seconds => new Date(seconds * 1000).toISOString();
  location.href = `${zoom}${zoom.includes("?") ? (zoom.endsWith("?") ? "" : "&") : "?"}from=${encodeURIComponent(iso(from))}&to=${encodeURIComponent(iso(to))}`;
}
function shared(figure, height, ink) {
  const line = resolved("--line");
  const axis = {stroke: ink, grid: {stroke: line, width: 1}, ticks: {stroke: line, width: 1}, font: "12px system-ui"};
  const moments = (_, ticks, __, ___, step) => ticks.map(each => {
    const iso = new Date(each * 1000).toISOString();
    return step >= 86400 || each % 86400 === 0 ? iso.slice(5, 10) : iso.slice(11, step < 60 ? 19 : 16);
  });
  return {time: {...axis, values: moments, space: 75, incrs: [1, 5, 10, 15, 30, 60, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 604800, 2419200, 31536000]},
    width: Math.max(200, figure.clientWidth), height, ms: 1, axis, tzDate: ts => uPlot.tzDate(new Date(ts * 1000), "Etc/UTC"),
    cursor: {sync: {key: "time", scales: ["x", null]}, drag: {x: true, y: false, setScale: false}, points: {size: 7}},
    hooks: {setSelect: [u => { if (u.select.width > 4) zoomed(figure, u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")); }]},
  };
}
function line(figure, data) {
  const ink = resolved("--soft"), base = shared(figure, 190, ink);
  const series = data.names.map((name, place) => ({
    label: name, stroke: resolved(SERIES[place % 6]), width: 1.5, fill: data.names.length === 1 ? resolved("--fill") : undefined,
    spanGaps: false, points: {show: data.x.length < 30}, value: (_, value, __, at) => at === null || at === undefined ? "" : shown(value, data.unit),
  }));
  return new uPlot({
    ...base, series: [{label: "UTC", value: (_, at) => at === null ? "" : new Date(at * 1000).toISOString().slice(0, 19).replace("T", " ")}, ...series],
    scales: {x: {time: true, range: () => [data.since / 1000, data.until / 1000]}, y: {range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1]}},
    axes: [base.time, {...base.axis, size: 62, values: (_, ticks) => ticks.map(each => shown(each, data.unit))}],
    legend: {live: true},
  }, [data.x, ...data.y], figure);
}
function lanes(figure, data) {
  const ink = resolved("--soft"), height = 60 + 26 * data.lanes.length, base = shared(figure, height, ink);
  const sorted = found => [...found].sort((a, b) => a[0] - b[0]), good = resolved("--link"), bad = resolved("--bad");
  let marks = sorted(data.marks);
  const tip = document.createElement("p");
  tip.className = "tip";
  const near = u => {
    let best = null, distance = 12;
    for (const mark of marks) {
      const away = Math.hypot(u.valToPos(mark[0], "x") - u.cursor.left, u.valToPos(mark[1], "y") - u.cursor.top);
      if (away < distance) { distance = away; best = mark; }
    }
    return best;
  };
  const chart = new uPlot({
    ...base, legend: {show: false}, series: [{}, {paths: () => null, points: {show: false}}],
    scales: {x: {time: true, range: () => [data.since / 1000, data.until / 1000]}, y: {range: () => [data.lanes.length - 0.5, -0.5]}},
    axes: [base.time, {...base.axis, size: innerWidth < 640 ? 95 : 130, splits: data.lanes.map((_, place) => place), values: () => data.lanes}],
    hooks: {
      ...base.hooks,
      draw: [u => {
        const ratio = devicePixelRatio || 1;
        for (const [at, lane, isBad] of marks) {
          const x = u.valToPos(at, "x", true), y = u.valToPos(lane, "y", true), size = 5 * ratio;
          u.ctx.fillStyle = isBad ? bad : good;
          u.ctx.beginPath();
          if (isBad) { u.ctx.moveTo(x, y - size); u.ctx.lineTo(x + size, y + size); u.ctx.lineTo(x - size, y + size); }
          else u.ctx.arc(x, y, size * 0.8, 0, 7);
          u.ctx.fill();
        }
      }],
      setCursor: [u => {
        const found = u.cursor.left >= 0 ? near(u) : null;
        tip.textContent = found ? `${new Date(found[0] * 1000).toISOString().slice(11, 19)} ${found[3]}` : "";
      }],
    },
  }, [marks.map(each => each[0]), marks.map(each => each[1])], figure);
  figure.append(tip);
  chart.over.addEventListener("click", () => {
    const found = near(chart), row = found && document.getElementById(`moment-${found[4]}`);
    if (row) { row.scrollIntoView({block: "center"}); row.classList.add("found"); setTimeout(() => row.classList.remove("found"), 3000); }
  });
  chart.renew = fresh => {
    marks = sorted(fresh.marks);
    chart.setData([marks.map(each => each[0]), marks.map(each => each[1])]);
  };
  return chart;
}
function drop(figure) {
  const known = plots.get(figure);
  if (known) known.chart.destroy();
  plots.delete(figure);
  for (const each of figure.querySelectorAll(".tip")) each.remove();
}
function draw() {
  for (const figure of plots.keys()) if (!figure.isConnected) drop(figure);
  for (const figure of document.querySelectorAll("figure[data-plot], figure[data-marks]")) {
    const text = figure.dataset.plot || figure.dataset.marks, theme = isDark(), known = plots.get(figure);
    if (known && known.text === text && known.theme === theme && known.width === figure.clientWidth) continue;
    const data = JSON.parse(text);
    const names = (data.names || data.lanes).join();
    if (known && known.theme === theme && known.width === figure.clientWidth && known.names === names) {
      known.range.since = data.since;
      known.range.until = data.until;
      if (known.chart.renew) known.chart.renew(data);
      else known.chart.setData([data.x, ...data.y]);
      known.text = text;
      continue;
    }
    drop(figure);
    const chart = figure.dataset.plot ? line(figure, data) : lanes(figure, data);
    plots.set(figure, {chart, text, theme, width: figure.clientWidth, names, range: data});
  }
}

// Lists that are filtered while somebody types, rows beside their list, copies
function sift() {
  for (const form of document.querySelectorAll("form[data-filters]")) {
    const wanted = form.elements.q.value.toLowerCase();
    for (const row of document.querySelectorAll(form.dataset.filters)) {
      const name = row.querySelector("th");
      if (name) row.hidden = !name.textContent.toLowerCase().includes(wanted);
    }
  }
}
class Number_ { // as it is written: a number of JavaScript has fewer digits
  constructor(text) { this.text = text; }
}
function tree(value, name) {
  const isFolder = value !== null && typeof value === "object" && !(value instanceof Number_), node = document.createElement(isFolder ? "details" : "div");
  if (!isFolder) { node.textContent = `${name}: ${value instanceof Number_ ? value.text : JSON.stringify(value)}`; return node; }
  const summary = document.createElement("summary"), fields = Object.entries(value);
  summary.textContent = `${name} ${Array.isArray(value) ? `[${fields.length}]` : `{${fields.length}}`}`;
  node.append(summary, ...fields.map(([key, each]) => tree(each, key)));
  node.open = fields.length <= 20;
  return node;
}
function folded() {
  for (const text of document.querySelectorAll("section.column pre:not([hidden])")) {
    if (!/^[{[]/.test(text.textContent) || text.textContent.length > 200000) continue;
    const box = document.createElement("div");
    box.className = "tree";
    box.dataset.own = "yes";
    try { box.append(tree(JSON.parse(text.textContent, (_, value, context) => typeof value === "number" ? new Number_(context.source) : value), "")); } catch { continue; }
    text.hidden = true;
    text.after(box);
  }
}
async function beside(link) {
  const panel = document.getElementById(link.dataset.beside);
  const answer = await fetch(link.href), html = new DOMParser().parseFromString(await answer.text(), "text/html");
  panel.replaceChildren(...html.getElementById("content").childNodes);
  for (const each of document.querySelectorAll("tr.chosen")) each.classList.remove("chosen");
  link.closest("tr").classList.add("chosen");
  refresh();
}
function refresh() {
  relative();
  draw();
  sift();
  folded();
  for (const each of document.querySelectorAll("button.copy")) each.hidden = !navigator.clipboard;
}

document.addEventListener("DOMContentLoaded", () => {
  const main = document.getElementById("content");
  for (const each of document.querySelectorAll("#filters")) if (innerWidth < 640) each.open = false;
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* then it lasts as long as the page */ }
    draw();
  });
  document.addEventListener("keydown", event => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    event.preventDefault();
    (document.getElementById("q") || document.getElementById("find")).focus();
  });
  document.addEventListener("input", event => { if (event.target.name === "q") sift(); });
  document.addEventListener("click", event => {
    const link = event.target.closest("a[data-beside]");
    if (link && innerWidth >= 1000 && !event.ctrlKey && !event.metaKey) { event.preventDefault(); beside(link); }
    const copy = event.target.closest("button.copy");
    if (copy) navigator.clipboard.writeText(copy.nextElementSibling.textContent).then(() => { copy.textContent = "Copied"; });
  });
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  refresh();
  if (main.dataset.screen === undefined) return;
  screenName = main.dataset.screen;
  document.addEventListener("visibilitychange", ask);
  timer = setTimeout(ask, ASK_MS);
});
