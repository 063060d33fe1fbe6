"use strict";
const failures = [];
addEventListener("error", event => failures.push(String(event.message)));
addEventListener("securitypolicyviolation", event => failures.push("refused: " + event.violatedDirective));

const { profile, timeline, categories: CATEGORIES } = JSON.parse(document.getElementById("data").textContent);
const LOOKS = {  // category -> colour, and whether it is hatched
  "gemm": ["blue"], "attention": ["orange"], "norm": ["green"], "activation and elementwise": ["sky"],
  "softmax and reduction": ["purple"], "copy and fill": ["yellow"], "moe and sorting": ["red"],
  "convolution": ["blue", true], "cache": ["yellow", true], "communication": ["red", true],
  "quantization": ["green", true], "other Triton": ["purple", true], "unclassified": ["grey", true],
};
const looks = category => LOOKS[category] || LOOKS.unclassified;
const classes = category => looks(category)[0] + (looks(category)[1] ? " hatched" : "");

// ---- Numbers, each with its unit; what is not known is a dash and never a zero

const known = value => typeof value === "number" && Number.isFinite(value);
const digits = value => Math.abs(value) >= 100 || value === 0 ? 0 : Math.abs(value) >= 10 ? 1 : Math.abs(value) >= 0.1 ? 2 : 4;
function number(value, places = known(value) ? digits(value) : 0) {
  if (!known(value)) return "–";
  if (Math.abs(value) >= 1e9) return value.toExponential(2);
  return value.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
}
const count = value => number(value, Number.isInteger(value) ? 0 : 1);
const share = (value, places = 1) => known(value) ? number(100 * value, places) + "%" : "–";
function time(us) {
  if (!known(us)) return "–";
  const [unit, size] = us >= 1e6 ? ["s", 1e6] : us >= 1e3 ? ["ms", 1e3] : ["µs", 1];
  return `${number(us / size, us / size >= 100 ? 0 : us / size >= 10 ? 1 : 2)} ${unit}`;
}
const plural = (many, one, more = `${one}s`) => `${count(many)} ${many === 1 ? one : more}`;
const compare = (a, b) => a < b ? -1 : a > b ? 1 : 0;

// ---- Elements: text goes in as text nodes, attributes are ours

const find = selector => document.querySelector(selector);
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "line", "path", "circle", "text", "rect"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
const swatch = category => make("i", { class: `swatch fill ${classes(category)}`, "aria-hidden": "true" });

// Only files of Python's, and only on this machine: another kind might run in the browser, and `//host` is elsewhere.
function place(where, shown = where) {
  const parts = /^(\/(?!\/)[^\\]+\.py):(\d+)$/.exec(where);
  if (!parts) return shown;
  let path;
  try { path = parts[1].split("/").map(encodeURIComponent).join("/"); } catch { return shown; }
  return make("a", { href: `file://${path}`, rel: "noreferrer", title: where }, shown);
}
const lastPart = where => where.slice(where.lastIndexOf("/") + 1) || where;

const tip = find("#tip");
function showTip(lines, x, y) {
  tip.replaceChildren(...lines.filter(Boolean).map(line => make("div", {}, line.length > 300 ? line.slice(0, 300) + "…" : line)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 6)) + "px";
  tip.style.top = Math.max(4, y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18) + "px";
}
const hideTip = () => { tip.hidden = true; };

// ---- Tables that sort by any column

const MOST_ROWS = 500;
function sortable(host, label, columns, rows, { first = null, detail = null } = {}) {
  const body = make("tbody"), lines = new Map(), opened = new Map(), head = make("tr");
  let sorted = first, descending = first ? !first.text : false, wanted = () => true;
  function row(each) {
    if (!lines.has(each)) {
      const line = make("tr", { "data-index": rows.indexOf(each) }, ...columns.map(column => {
        const shown = column.cell ? column.cell(each) : column.show ? column.show(column.value(each)) : column.value(each);
        return make("td", { class: column.style || (column.text ? "text" : "number") }, ...[shown].flat());
      }));
      lines.set(each, line);
    }
    return lines.get(each);
  }
  function order(a, b) {
    const [one, other] = [sorted.value(a), sorted.value(b)];
    if (!sorted.text && !(known(one) && known(other))) return known(other) - known(one);  // not known: last, always
    const by = sorted.text ? compare(one.toLowerCase(), other.toLowerCase()) : one - other;
    return descending ? -by : by;
  }
  function update() {
    const chosen = rows.filter(wanted);
    if (sorted) chosen.sort(order);
    body.replaceChildren(...chosen.slice(0, MOST_ROWS).flatMap(each => opened.has(each) ? [row(each), opened.get(each)] : [row(each)]));
    columns.forEach((column, index) => {
      const cell = head.children[index];
      cell.setAttribute("aria-sort", column !== sorted ? "none" : descending ? "descending" : "ascending");
      cell.querySelector(".arrow").textContent = column !== sorted ? "" : descending ? "▼" : "▲";
    });
    return chosen;
  }
  head.append(...columns.map(column => {
    const title = make("span", { class: "title" }, column.title), arrow = make("span", { class: "arrow", "aria-hidden": "true" });
    const button = make("button", { type: "button" }, ...(column.text ? [title, arrow] : [arrow, title]), make("small", {}, column.unit || ""));
    button.addEventListener("click", () => {
      descending = sorted === column ? !descending : !column.text;
      sorted = column;
      update();
    });
    return make("th", { scope: "col", class: column.text ? "" : "number" }, button);
  }));
  const table = make("table", { "aria-label": label }, make("thead", {}, head), body);
  host.replaceChildren(make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table));
  update();
  function toggle(each, open = !opened.has(each)) {
    if (open && !opened.has(each)) opened.set(each, make("tr", { class: "detail" }, make("td", { colspan: columns.length }, detail(each))));
    if (open) row(each).after(opened.get(each));
    else if (opened.has(each)) { opened.get(each).remove(); opened.delete(each); }
    row(each).querySelector(".open").setAttribute("aria-expanded", open);
  }
  return { filter(test) { wanted = test; return update(); }, row, toggle };
}

// ---- The head, the advice and the lists

function drawHead() {
  find("#entry").textContent = profile.entry || "(no entry)";
  find("#device").textContent = `${profile.device || "unknown device"}${profile.architecture ? `, ${profile.architecture}` : ""}; `
    + `${plural(profile.calls, "call")} profiled`;
  const tiles = [
    ["latency of a call", time(profile.call_us), `${profile.cases.length ? `mean of ${plural(profile.cases.length, "case")}` : "median"}, without the profiler`],
    ["device busy", time(profile.busy_us), "of a call"],
    ["idle", share(profile.idle_share), `of ${time(profile.span_us)} from first to last kernel`],
    ["launches", count(profile.launches), "kernels per call"],
    ["median gap", time(profile.gap_us), "between two kernels"],
  ];
  find("#tiles").append(...tiles.map(([name, value, about]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, value, make("small", {}, about)))));
}

function drawLists() {
  const fill = (list, texts, wrap = text => text) => list.append(...texts.map(text => make("li", {}, wrap(text))));
  const { primary_bottleneck_component: component, primary_bottleneck_type: kind } = profile;
  if (component || kind) find("#bottleneck").append("Primary bottleneck: ", make("strong", {}, component && kind ? `${component} (${kind})` : component || kind));
  fill(find("#recommendations"), profile.recommendations, text => make("span", { class: "cut" }, text));
  fill(find("#commands"), profile.deeper, text => make("code", { class: "cut" }, text));
  fill(find("#notes ul"), profile.notes, text => make("span", { class: "cut" }, text));
  find("#advice").hidden = !(component || kind || profile.recommendations.length);
  find("#deeper").hidden = !profile.deeper.length;
  find("#notes").hidden = !profile.notes.length;
}

// ---- Categories

function fitLabels() {
  document.querySelectorAll(".bar > div > span").forEach(label => {
    label.hidden = false;
    label.hidden = label.offsetWidth > label.parentNode.clientWidth - 6;
  });
}

function drawCategories() {
  const rows = profile.categories.slice();
  if (!rows.some(row => row.category === "unclassified")) rows.push({ category: "unclassified", share: 0, time_us: 0 });
  rows.sort((a, b) => (a.category === "unclassified") - (b.category === "unclassified") || (b.share || 0) - (a.share || 0));
  const piece = (style, part, text, about) => {
    const found = make("div", { class: `fill ${style}` });
    found.style.flexGrow = Math.max(0, part);
    if (part > 0.03) found.append(make("span", {}, text));
    found.addEventListener("pointermove", event => showTip(about, event.clientX, event.clientY));
    found.addEventListener("pointerleave", hideTip);
    return found;
  };
  const idle = profile.idle_share;
  if (known(idle)) {
    find("#span").append(piece("blue", 1 - idle, `busy ${share(1 - idle)}`, ["busy", time(profile.busy_us)]),
      piece("idle", idle, `idle ${share(idle)}`, ["idle", time(profile.span_us - profile.busy_us)]));
  } else find("#span").remove();
  find("#span-text").textContent = !(profile.span_us > 0) ? "The device was never seen at work." : `Of ${time(profile.span_us)} from the first kernel to the last the device was busy for `
    + `${time(profile.busy_us)} and idle for ${share(idle)}. The busy time, by category:`;
  const drawn = rows.filter(row => row.share > 0);
  find("#stack").append(...drawn.map(row => piece(classes(row.category), row.share,
    row.share > 0.16 ? `${row.category} ${share(row.share)}` : share(row.share), [row.category, share(row.share), time(row.time_us)])));
  if (!drawn.length) find("#stack").remove();
  const columns = [
    { title: "category", text: true, style: "line", value: row => row.category, cell: row => [swatch(row.category), row.category] },
    { title: "share", unit: "of busy time", value: row => row.share, show: value => share(value) },
    { title: "time", unit: "µs per call", value: row => row.time_us, show: value => number(value) },
  ];
  sortable(find("#categories .host"), "Categories", columns, rows);
  fitLabels();
}

// ---- Kernels

const kernels = profile.kernels;
const ranked = kernels.slice().sort((a, b) => (known(b.share) ? b.share : -1) - (known(a.share) ? a.share : -1));
ranked.forEach((kernel, index) => { kernel.rank = index + 1; });
let kernelTable;

function origin(kernel) {
  const inside = [kernel.op, kernel.module && `in ${kernel.module}`].filter(Boolean).join(" ");
  return [inside, kernel.where && lastPart(kernel.where)].filter(Boolean).join(", ");
}

function numbers(kernel) {
  return [`${share(kernel.share)} of busy time: ${plural(kernel.calls, "launch", "launches")} of ${time(kernel.mean_us)}`,
    known(kernel.gbps) || known(kernel.tflops) ? `${number(kernel.gbps)} GB/s, ${number(kernel.tflops)} TFLOP/s` : "",
    known(kernel.speed_of_light) ? `${share(kernel.speed_of_light, 0)} of what the device can reach` : "",
    kernel.cause !== "unknown" ? kernel.cause + (kernel.why ? `: ${kernel.why}` : "") : kernel.why];
}

function details(kernel) {
  const launch = kernel.launch, dash = (value, unit = "") => known(value) ? `${count(value)}${unit}` : "";
  const facts = [
    ["name", make("span", { class: "code" }, kernel.name || "(no name)")], ["why", kernel.why], ["operation", kernel.op], ["module", kernel.module],
    ["where", kernel.where && place(kernel.where)], ["data type", kernel.dtype],
    ["moves at least", known(kernel.bytes) ? `${number(kernel.bytes / 1e6)} MB per launch` : ""],
    ["does", known(kernel.flops) ? `${number(kernel.flops / 1e9)} GFLOP per launch` : ""],
    ["workgroups", dash(launch.workgroups)], ["workgroup size", dash(launch.workgroup_size, " lanes")],
    ["registers", dash(launch.registers, " per lane") + (known(launch.accumulators) ? `, of which ${count(launch.accumulators)} accumulators` : "")],
    ["LDS", dash(launch.lds_bytes, " bytes per workgroup")], ["scratch", dash(launch.scratch_bytes, " bytes")],
    ["occupancy", known(launch.occupancy) ? share(launch.occupancy, 0) : ""],
    ...Object.entries(launch.counters).map(([name, value]) => [name, number(value)]),
  ];
  const wide = new Set(["name", "why"]);
  return make("dl", {}, ...facts.filter(([, value]) => value).map(([name, value]) =>
    make("div", wide.has(name) ? { class: "whole" } : {}, make("dt", { class: "cut" }, name), make("dd", { class: "cut" }, value))));
}

function nameCell(kernel) {
  const button = make("button", { class: "open", type: "button", "aria-expanded": "false" }, make("span", {}, swatch(kernel.category), make("b", {}, kernel.short)), make("small", {}, origin(kernel) || "\u00a0"));
  button.addEventListener("click", () => kernelTable.toggle(kernel));
  return button;
}

function drawKernels() {
  if (!kernels.length) {
    find("#kernels .tools").remove();
    find("#kernels .host").append(make("p", { class: "soft" }, "No kernel was seen."));
    return;
  }
  const columns = [
    { title: "#", value: row => row.rank },
    { title: "kernel", text: true, style: "name", unit: "operation, module, source", value: row => row.name, cell: nameCell },
    { title: "share", unit: "of busy time", style: "number share", value: row => row.share, cell: row => {
      const bar = make("i"); bar.style.width = `${Math.min(1, Math.max(0, row.share || 0)) * 120}px`; return [share(row.share), bar]; } },
    { title: "calls", unit: "per call", value: row => row.calls, show: count },
    { title: "time", unit: "µs per call", value: row => row.time_us, show: value => number(value) },
    { title: "mean", unit: "µs", value: row => row.mean_us, show: value => number(value) },
    { title: "memory", unit: "GB/s", value: row => row.gbps, show: value => number(value) },
    { title: "compute", unit: "TFLOP/s", value: row => row.tflops, show: value => number(value) },
    { title: "limit", unit: "reached", value: row => row.speed_of_light, show: value => share(value, 0) },
    { title: "cause", text: true, style: "line", value: row => row.cause },
    { title: "category", text: true, style: "line", value: row => row.category },
  ];
  kernelTable = sortable(find("#kernels .host"), "Kernels", columns, kernels, { first: columns[2], detail: details });
  const filter = find("#filter"), texts = new Map(kernels.map(kernel => [kernel, ["name", "op", "module", "where", "category", "cause", "dtype"].map(key => kernel[key]).join(" ").toLowerCase()]));
  const update = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = kernelTable.filter(kernel => words.every(word => texts.get(kernel).includes(word)));
    const part = chosen.reduce((sum, kernel) => sum + (known(kernel.share) ? kernel.share : 0), 0);
    find("#filtered").textContent = `${count(chosen.length)} of ${plural(kernels.length, "kernel")}, ${share(part)} of busy time`
      + (chosen.length > MOST_ROWS ? `; the first ${MOST_ROWS} are listed` : "") + (chosen.length ? "" : "; no kernel has these words");
  };
  filter.addEventListener("input", update);
  update();
}

function reveal(kernel) {
  const line = kernelTable.row(kernel);
  if (!line.isConnected) { find("#filter").value = ""; find("#filter").dispatchEvent(new Event("input")); }
  document.querySelectorAll("tr.found").forEach(each => each.classList.remove("found"));
  line.classList.add("found");
  if (line.isConnected) kernelTable.toggle(kernel, true);
  line.scrollIntoView({ block: "center" });
  line.querySelector(".open").focus({ preventScroll: true });
}

// ---- Roofline

function drawRoofline() {
  const host = find("#roofline .host"), about = find("#roofline .about"), { memory_gbps: memory, peak_tflops: given, source } = profile.ceilings;
  const peaks = new Map();  // TFLOP/s -> the data types that have it
  for (const [dtype, peak] of Object.entries(given)) if (known(peak) && peak > 0) peaks.set(peak, [...(peaks.get(peak) || []), dtype]);
  const slope = known(memory) && memory > 0 ? memory / 1e3 : null;
  if (!slope && !peaks.size) {
    about.textContent = "What this device can reach is not known, neither measured nor from a datasheet, so that there is no roofline. What the kernels reached is in the table.";
    return host.replaceChildren();
  }
  const points = ranked.filter(kernel => [kernel.bytes, kernel.flops, kernel.mean_us].every(value => known(value) && value > 0))
    .map(kernel => ({ kernel, x: kernel.flops / kernel.bytes, y: kernel.flops / kernel.mean_us / 1e6 }));
  const shown = points.reduce((sum, { kernel }) => sum + (kernel.share || 0), 0);
  about.textContent = `Ceilings: ${source === "measured" ? "measured" : source}. ${slope ? "" : "The memory's bandwidth is not known. "}`
    + (points.length ? `${count(points.length)} of ${plural(kernels.length, "kernel")} are shown, ${share(shown)} of busy time: those whose FLOP and bytes are known. The numbers are those of the table below, the areas their shares.`
      : "No kernel is shown: of none are both FLOP and bytes known.");

  const width = Math.max(300, host.clientWidth), narrow = width < 700, height = narrow ? 340 : 420;
  const left = 58, right = width - (narrow ? 52 : 212), top = 26, bottom = height - 42;
  const highest = Math.max(...peaks.keys(), ...points.map(point => point.y), slope && !peaks.size ? slope * 100 : 0);
  const ridges = slope ? [...peaks.keys()].map(peak => peak / slope) : [];
  const xs = [...points.map(point => point.x), ...ridges, ...(points.length || ridges.length ? [] : [1])];
  const x0 = Math.max(Math.min(...xs) / 2.5, Math.max(...xs) / 1e9), x1 = Math.max(...xs) * 2.5;
  const lowest = Math.min(...points.map(point => point.y), ...(slope ? [slope * x0] : []), ...(peaks.size ? [Math.min(...peaks.keys()) / 3] : []));
  const y0 = Math.max(lowest / 1.6, highest / 1e9), y1 = highest * 1.9;
  const X = value => left + (right - left) * Math.log(value / x0) / Math.log(x1 / x0);
  const Y = value => bottom - (bottom - top) * Math.log(value / y0) / Math.log(y1 / y0);
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": "Roofline: compute rate over arithmetic intensity, both logarithmic. The table of kernels has the numbers." });
  const text = (x, y, words, more = {}) => svg.appendChild(make("text", { x, y, ...more }, words));
  const plain = value => value >= 1e6 || value < 1e-3 ? value.toExponential(0) : number(value, value >= 1 ? 0 : Math.round(-Math.log10(value)));
  const decades = (from, to) => Array.from({ length: Math.floor(Math.log10(to)) - Math.ceil(Math.log10(from)) + 1 }, (_, step) => 10 ** (Math.ceil(Math.log10(from)) + step));
  for (const value of decades(x0, x1)) {
    svg.append(make("line", { class: "grid", x1: X(value), x2: X(value), y1: top, y2: bottom }));
    text(X(value), bottom + 17, plain(value), { class: "soft", "text-anchor": "middle" });
  }
  for (const value of decades(y0, y1)) {
    svg.append(make("line", { class: "grid", x1: left, x2: right, y1: Y(value), y2: Y(value) }));
    text(left - 7, Y(value) + 4, plain(value), { class: "soft", "text-anchor": "end" });
  }
  text((left + right) / 2, height - 6, "arithmetic intensity in FLOP per byte", { class: "soft", "text-anchor": "middle" });
  text(4, 14, "TFLOP/s", { class: "soft" });

  const used = new Set(points.map(({ kernel }) => kernel.dtype)), labels = [];
  for (const [peak, dtypes] of [...peaks].sort((a, b) => b[0] - a[0])) {
    const ridge = slope ? Math.max(peak / slope, x0) : x0;
    svg.append(make("line", { class: dtypes.some(dtype => used.has(dtype)) ? "roof" : "roof unused", x1: X(ridge), x2: right, y1: Y(peak), y2: Y(peak) }));
    const names = dtypes.slice(0, 3).map(dtype => dtype.slice(0, 16)).join(", ") + (dtypes.length > 3 ? " …" : "");
    labels.push({ y: Y(peak), words: narrow ? number(peak) : `${names}: ${number(peak)} TFLOP/s`, long: `${names} ${number(peak)}` });
  }
  if (slope) {
    const end = Math.min(x1, highest / slope), start = Math.max(x0, y0 / slope);
    svg.append(make("line", { class: "roof", x1: X(start), y1: Y(slope * start), x2: X(end), y2: Y(slope * end) }));
    const angle = Math.atan2(Y(slope * end) - Y(slope * start), X(end) - X(start)) * 180 / Math.PI, at = start * (end / start) ** 0.3;
    text(0, -7, `memory: ${number(memory)} GB/s`, { class: "halo", "text-anchor": "middle", transform: `translate(${X(at)} ${Y(slope * at)}) rotate(${angle})` });
  }
  const dots = points.map(({ kernel, x, y }) => ({ kernel, x: X(x), y: Y(y), radius: Math.min(24, Math.max(5, 34 * Math.sqrt(kernel.share || 0))) }));
  const numbered = placeNumbers(dots.slice(0, MOST_NUMBERS), dots, { left, right, top, bottom });
  dots.forEach(dot => svg.append(drawPoint(dot)));  // the smaller on top
  numbered.forEach(({ dot, x, y, x1, y1, away }) => {
    if (away) svg.append(make("line", { class: "leader", x1, y1, x2: x, y2: y }));
    text(x, y + 4, String(dot.kernel.rank), { class: "halo number", "text-anchor": "middle" });
  });
  let above = -Infinity;
  for (const { y, words } of labels) {
    above = Math.max(y, above + 15);
    svg.append(make("line", { class: "leader", x1: right, y1: y, x2: right + 8, y2: above }));
    text(right + 11, above + 4, words);
  }
  host.replaceChildren(svg);
  if (narrow) host.append(make("p", { class: "soft" }, `Ceilings in TFLOP/s: ${labels.map(label => label.long).join("; ")}.`));
}

// Each number on its point when it has room there, else beside it, else farther away with a line to it.
const MOST_NUMBERS = 25;
function placeNumbers(dots, all, { left, right, top, bottom }) {
  const placed = [];
  for (const dot of dots) {
    const half = 4.5 * String(dot.kernel.rank).length;
    const crowded = all.some(other => other !== dot && Math.hypot(other.x - dot.x, other.y - dot.y) < other.radius + dot.radius + 8);
    const spots = dot.radius >= 9 ? [{ x: dot.x, y: dot.y, over: true }] : [];
    for (const distance of [dot.radius + half + 4, dot.radius + 24, dot.radius + 44]) {
      for (const turn of [0, 2, 1, 3, 0.5, 1.5, 2.5, 3.5]) {
        spots.push({ x: dot.x + distance * Math.cos(turn * Math.PI / 2), y: dot.y - distance * Math.sin(turn * Math.PI / 2), away: crowded || distance > dot.radius + half + 4 });
      }
    }
    const open = ({ x1, y1 }) => all.every(other => other === dot || other.radius > dot.radius || Math.hypot(other.x - x1, other.y - y1) > other.radius);
    const free = ({ x, y, over }) => (over || open(edge(dot, { x, y })))
      && x > left + half && x < right - half && y > top && y < bottom - 6
      && placed.every(other => Math.abs(other.x - x) > other.half + half + 10 || Math.abs(other.y - y) > 14)
      && all.every(other => (over && (other === dot || other.radius > dot.radius)) || Math.hypot(other.x - x, other.y - y) > other.radius + 5);
    const spot = spots.find(free);
    if (spot) placed.push({ ...spot, ...edge(dot, spot), dot, half });
  }
  return placed;
}

function edge(dot, { x, y }) {
  const part = dot.radius / (Math.hypot(x - dot.x, y - dot.y) || 1);
  return { x1: dot.x + part * (x - dot.x), y1: dot.y + part * (y - dot.y) };
}

function drawPoint({ kernel, x, y, radius }) {
  const group = make("g", { class: `point ${looks(kernel.category)[0]}`, tabindex: "0", role: "button", "aria-label": `${kernel.rank}: ${kernel.short}, ${numbers(kernel).filter(Boolean).join("; ")}` },
    looks(kernel.category)[1] ? make("path", { class: "shape", d: `M${x} ${y - radius}l${radius} ${radius}l${-radius} ${radius}l${-radius} ${-radius}z` })
      : make("circle", { class: "shape", cx: x, cy: y, r: radius }));
  const tell = (left, top) => showTip([`${kernel.rank}: ${kernel.name}`, origin(kernel), ...numbers(kernel), `${number(kernel.flops / kernel.bytes)} FLOP per byte`], left, top);
  group.addEventListener("pointermove", event => tell(event.clientX, event.clientY));
  group.addEventListener("pointerleave", hideTip);
  group.addEventListener("focus", () => { const box = group.getBoundingClientRect(); tell(box.right, box.bottom); });
  group.addEventListener("blur", hideTip);
  group.addEventListener("click", () => reveal(kernel));
  group.addEventListener("keydown", event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); reveal(kernel); } });
  return group;
}

// ---- Timeline: of a pixel that launches share, each category gets its part of the height

const MOST_LANES = 12, LANE = 30, GUTTER = 74;
const canvas = find("#timeline canvas"), SHORTEST_VIEW = 0.05, order = new Map(CATEGORIES.map((category, index) => [category, index]));
let lanes = [], gaps = [], whole = [0, 1], view = [0, 1], selection = null;

function readTimeline() {
  const streams = new Map(), all = [];
  timeline.start.forEach((start, index) => {
    const duration = timeline.duration[index];
    if (!known(start) || !known(duration) || duration < 0) return;
    const kernel = kernels[timeline.kernel[index]];
    const span = { start, end: start + duration, kernel, category: kernel ? kernel.category : "unclassified" };
    all.push(span);
    const stream = timeline.stream[index];
    if (!streams.has(stream)) streams.set(stream, []);
    streams.get(stream).push(span);
  });
  all.sort((a, b) => a.start - b.start);
  let last = null;
  for (const span of all) {
    if (last && span.start > last.end) gaps.push({ start: last.end, end: span.start, after: last, before: span });
    if (!last || span.end > last.end) last = span;
  }
  lanes = [...streams].sort((a, b) => a[0] - b[0]).slice(0, MOST_LANES).map(([stream, spans]) => {
    spans.sort((a, b) => a.start - b.start);
    let reach = -Infinity;
    for (const span of spans) span.reach = reach = Math.max(reach, span.end);
    return { name: streams.size > 1 ? `stream ${stream}` : "kernels", spans };
  });
  if (all.length) whole = [all[0].start, Math.max(last.end, all[0].start + SHORTEST_VIEW)];
  view = whole.slice();
  return { shown: all.length, left: timeline.start.length - all.length, lanesLeft: streams.size - lanes.length };
}

// The first that is not over before `time`, by bisection: `reach` only grows.
function firstAt(spans, time, end = "reach") {
  let low = 0, high = spans.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[middle][end] < time) low = middle + 1; else high = middle;
  }
  return low;
}

let plotWidth = 50;  // of the canvas without its gutter; asked for once a drawing
const toX = time => GUTTER + (time - view[0]) / (view[1] - view[0]) * plotWidth;
const toTime = x => view[0] + (x - GUTTER) / plotWidth * (view[1] - view[0]);
const laneTop = index => 4 + index * (LANE + 5);

function drawTimeline() {
  const width = canvas.clientWidth, height = laneTop(lanes.length) + 18 + 30, scale = devicePixelRatio || 1;
  plotWidth = Math.max(50, width - GUTTER - 4);
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  const color = name => style.getPropertyValue(`--${name}`).trim();
  context.scale(scale, scale);
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  const fills = new Map(CATEGORIES.map(category => [category, filling(context, color(looks(category)[0]), looks(category)[1] && color("hatch"), scale)]));
  const ink = color("ink"), soft = color("soft");

  const step = niceStep((view[1] - view[0]) / Math.max(2, plotWidth / 95)), base = laneTop(lanes.length) + 22;
  context.textAlign = "center";
  for (let tick = Math.ceil((view[0] - whole[0]) / step) * step; tick <= view[1] - whole[0]; tick += step) {
    const x = toX(whole[0] + tick);
    context.fillStyle = color("line");
    context.fillRect(Math.round(x), 2, 1, base - 2);
    context.fillStyle = soft;
    context.fillText(tickText(tick, step), Math.min(Math.max(x, GUTTER + 12), width - 26), base + 10);
  }
  context.textAlign = "left";
  lanes.forEach((lane, index) => {
    context.fillStyle = soft;
    context.fillText(lane.name, 0, laneTop(index) + LANE / 2, GUTTER - 6);
    drawLane(context, lane, laneTop(index), fills, ink, color("card"));
  });
  context.fillStyle = soft;
  context.fillText("all idle", 0, laneTop(lanes.length) + 7, GUTTER - 6);
  drawIdle(context, laneTop(lanes.length), ink);
  if (selection) {
    context.fillStyle = color("link");
    context.globalAlpha = 0.25;
    context.fillRect(Math.min(...selection), 0, Math.abs(selection[1] - selection[0]), base);
    context.globalAlpha = 1;
  }
  const all = view[0] === whole[0] && view[1] === whole[1];
  find("#view").textContent = `${time(view[0] - whole[0])} to ${time(view[1] - whole[0])}${all ? " (all of it)" : ""}`;
}

function filling(context, color, hatch, scale) {
  if (!hatch) return color;
  const tile = make("canvas", { width: 6, height: 6 }), pen = tile.getContext("2d");
  pen.fillStyle = color;
  pen.fillRect(0, 0, 6, 6);
  pen.strokeStyle = hatch;
  pen.lineWidth = 2;
  pen.beginPath();
  for (const shift of [-6, 0, 6]) { pen.moveTo(shift - 1, 7); pen.lineTo(shift + 7, -1); }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}

function drawLane(context, lane, top, fills, ink, card) {
  const parts = new Float32Array((GUTTER + Math.ceil(plotWidth) + 2) * CATEGORIES.length);  // of a pixel, by category
  for (let index = firstAt(lane.spans, view[0]); index < lane.spans.length && lane.spans[index].start <= view[1]; index++) {
    const span = lane.spans[index], from = Math.max(toX(span.start), GUTTER), to = Math.min(toX(span.end), GUTTER + plotWidth);
    if (to < from) continue;
    if (to - from >= 2) { drawSpan(context, span, from, to, top, fills, ink, card); continue; }
    parts[Math.floor(from) * CATEGORIES.length + order.get(span.category)] += Math.max(to - from, 0.04);
  }
  const bottoms = new Map();
  for (const [category, index] of order) {
    context.fillStyle = fills.get(category);
    for (let at = index; at < parts.length; at += CATEGORIES.length) {
      if (!parts[at]) continue;
      const x = (at - index) / CATEGORIES.length, bottom = bottoms.get(x) || top + LANE, tall = Math.min(LANE * parts[at], bottom - top);
      context.fillRect(x, bottom - tall, 1, tall);
      bottoms.set(x, bottom - tall);
    }
  }
}

function drawSpan(context, span, from, to, top, fills, ink, card) {
  const width = to - from - (to - from > 4 ? 0.75 : 0);
  context.fillStyle = fills.get(span.category);
  context.fillRect(from, top, width, LANE);
  if (width < 46 || !span.kernel) return;
  let words = span.kernel.short;
  const room = Math.floor((width - 12) / 6.2);
  if (words.length > room) words = words.slice(0, Math.max(1, room - 1)) + "…";
  const wide = Math.min(context.measureText(words).width, width - 10);
  const [color, hatched] = looks(span.category);
  if (hatched) {
    context.fillStyle = card;
    context.fillRect(from + 3, top + 5, wide + 5, LANE - 10);
  }
  context.fillStyle = hatched ? ink : color === "blue" ? "#fff" : "#000";
  context.fillText(words, from + 5, top + LANE / 2, width - 10);
}

function drawIdle(context, top, ink) {
  context.fillStyle = ink;
  const covered = new Map();
  for (let index = firstAt(gaps, view[0], "end"); index < gaps.length && gaps[index].start <= view[1]; index++) {
    const from = Math.max(toX(gaps[index].start), GUTTER), to = Math.min(toX(gaps[index].end), GUTTER + plotWidth);
    if (to - from >= 1) context.fillRect(from, top, to - from, 14);
    else covered.set(Math.floor(from), (covered.get(Math.floor(from)) || 0) + to - from);
  }
  for (const [x, part] of covered) context.fillRect(x, top + 14 * (1 - Math.min(1, part)), 1, 14 * Math.min(1, part));
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find(factor => factor * power >= rough);
}

function tickText(us, step) {
  const [unit, size] = step >= 1e5 ? ["s", 1e6] : step >= 100 ? ["ms", 1e3] : ["µs", 1];
  return `${number(us / size, Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9)))} ${unit}`;
}

function zoomTo(from, to) {
  const length = Math.min(Math.max(to - from, SHORTEST_VIEW), whole[1] - whole[0]);
  const start = Math.min(Math.max((from + to - length) / 2, whole[0]), whole[1] - length);
  view = length >= whole[1] - whole[0] ? whole.slice() : [start, start + length];
  drawTimeline();
}
function zoomBy(factor, around = (view[0] + view[1]) / 2) { zoomTo(around - (around - view[0]) * factor, around + (view[1] - around) * factor); }
const panBy = part => { const by = part * (view[1] - view[0]); zoomTo(Math.max(whole[0], view[0] + by) , Math.max(whole[0], view[0] + by) + view[1] - view[0]); };

function hit(x, y) {
  const near = 2 * (view[1] - view[0]) / plotWidth, at = toTime(x), index = lanes.findIndex((_, lane) => y >= laneTop(lane) && y < laneTop(lane) + LANE);
  const spans = index >= 0 ? lanes[index].spans : y >= laneTop(lanes.length) && y < laneTop(lanes.length) + 16 ? gaps : [];
  let best = null, distance = near;
  for (let each = firstAt(spans, at - near, spans === gaps ? "end" : "reach"); each < spans.length && spans[each].start <= at + near; each++) {
    const away = Math.max(0, spans[each].start - at, at - spans[each].end);
    if (away <= distance) { best = spans[each]; distance = away; }
    if (away === 0) break;
  }
  return best;
}

const nameOf = span => span.kernel ? `${span.kernel.rank}: ${span.kernel.short}` : "unknown kernel";

function listenToTimeline() {
  const inside = event => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  canvas.addEventListener("wheel", event => {
    const unit = event.deltaMode ? 16 : 1, [x] = inside(event), all = view[1] - view[0] >= whole[1] - whole[0];
    const sideways = event.shiftKey ? event.deltaX || event.deltaY : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
    if (all && (sideways || event.deltaY > 0)) return;  // there is no more of it: let the page scroll
    event.preventDefault();
    if (sideways) panBy(unit * sideways / plotWidth); else zoomBy(Math.exp(Math.max(-300, Math.min(300, unit * event.deltaY)) * 0.002), toTime(x));
  }, { passive: false });
  canvas.addEventListener("pointerdown", event => { if (event.button === 0) { const [x] = inside(event); selection = [x, x]; hideTip(); } });
  addEventListener("pointermove", event => {
    if (selection) { selection[1] = inside(event)[0]; drawTimeline(); return; }
    if (event.target !== canvas) return;
    const found = hit(...inside(event));
    if (!found) { hideTip(); return; }
    const when = `${time(found.end - found.start)}, from ${time(found.start - whole[0])} on`;
    showTip(found.after ? ["idle", when, `after ${nameOf(found.after)}`, `before ${nameOf(found.before)}`] : [nameOf(found), found.category, when, found.kernel ? origin(found.kernel) : ""], event.clientX, event.clientY);
  });
  addEventListener("pointerup", event => {
    if (!selection) return;
    const [from, to] = [Math.min(...selection), Math.max(...selection)], found = hit(...inside(event));
    selection = null;
    if (to - from > 4) zoomTo(toTime(Math.max(from, GUTTER)), toTime(to)); else if (found && found.kernel) reveal(found.kernel);
    drawTimeline();
  });
  addEventListener("pointercancel", () => { selection = null; drawTimeline(); });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("dblclick", () => zoomTo(...whole));
  canvas.addEventListener("keydown", event => {
    const act = { "+": () => zoomBy(0.5), "=": () => zoomBy(0.5), "-": () => zoomBy(2), "0": () => zoomTo(...whole), ArrowLeft: () => panBy(-0.2), ArrowRight: () => panBy(0.2) }[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  document.querySelectorAll("[data-zoom]").forEach(button => button.addEventListener("click", () => button.dataset.zoom === "all" ? zoomTo(...whole) : zoomBy(Number(button.dataset.zoom))));
}

function startTimeline() {
  const { shown, left, lanesLeft } = readTimeline(), about = find("#timeline .about");
  if (!shown) {
    canvas.remove();
    document.querySelectorAll("#timeline .tools, #timeline .hint").forEach(each => each.remove());
    about.textContent = "No launch was seen.";
    return;
  }
  const missing = [timeline.cut ? `${plural(timeline.cut, "later launch", "later launches")} not drawn` : "", left ? `${plural(left, "launch", "launches")} without a time` : "", lanesLeft > 0 ? `${plural(lanesLeft, "stream")} more` : ""].filter(Boolean);
  about.textContent = "Where launches are too short to draw, the height of a colour is the part of that time which its category takes." + (missing.length ? ` Left out: ${missing.join(", ")}.` : "");
  canvas.setAttribute("aria-label", `${plural(shown, "launch", "launches")} in ${time(whole[1] - whole[0])}, with ${plural(gaps.length, "gap")} of ${time(gaps.reduce((sum, gap) => sum + gap.end - gap.start, 0))} together. Plus, minus, 0 and the arrow keys zoom and move.`);
  listenToTimeline();
  drawTimeline();
  const longest = gaps.slice().sort((a, b) => b.end - b.start - a.end + a.start).slice(0, 8);
  if (!longest.length) return;
  const columns = [
    { title: "longest gaps", unit: "µs", value: gap => gap.end - gap.start, show: value => number(value) },
    { title: "at", unit: "µs", value: gap => gap.start - whole[0], show: value => number(value) },
    { title: "after", text: true, style: "line", value: gap => nameOf(gap.after) },
    { title: "before", text: true, style: "line", value: gap => nameOf(gap.before) },
  ];
  sortable(find("#timeline .host"), "Longest gaps", columns, longest, { first: columns[0] });
}

// ---- Cases, modules and steps

function drawCasesModulesAndSteps() {
  const none = (id, text) => find(`#${id} .host`).append(make("p", { class: "soft" }, text));
  const modules = [
    { title: "module", text: true, value: row => row.name, cell: row => make("span", { class: "cut" }, row.name) },
    { title: "share", unit: "of busy time", value: row => row.share, show: value => share(value) },
    { title: "time", unit: "µs per call", value: row => row.time_us, show: value => number(value) },
    { title: "count", unit: "instances", value: row => row.instances || null, show: count },
    { title: "source", text: true, style: "line", value: row => row.where, cell: row => place(row.where, lastPart(row.where)) },
  ];
  const steps = [
    { title: "step", text: true, style: "line", value: row => row.step },
    { title: "at most", unit: "times faster", value: row => row.speedup, show: value => known(value) ? `${number(value, 2)}×` : "–" },
    { title: "because", text: true, value: row => row.reason, cell: row => make("span", { class: "cut" }, row.reason) },
  ];
  const cases = [
    { title: "case", text: true, value: row => row.name, cell: row => make("span", { class: "cut" }, row.name) },
    { title: "latency", unit: "µs per call", value: row => row.call_us, show: value => number(value) },
    { title: "busy", unit: "µs per call", value: row => row.busy_us, show: value => number(value) },
    { title: "idle", unit: "of the call", value: row => row.idle_share, show: value => share(value) },
    { title: "launches", unit: "kernels per call", value: row => row.launches, show: count },
    { title: "bottleneck", text: true, style: "line", value: row => row.bottleneck },
  ];
  find("#cases").hidden = !profile.cases.length;
  if (profile.cases.length) sortable(find("#cases .host"), "Cases", cases, profile.cases);
  if (profile.modules.length) sortable(find("#modules .host"), "Modules", modules, profile.modules, { first: modules[1] });
  else none("modules", "No module was seen.");
  if (profile.steps.length) sortable(find("#steps .host"), "Steps", steps, profile.steps);
  else find("#steps .about").textContent = "Nothing is predicted.";
}

// ---- The page tries itself out, as a person would with mouse and keyboard

function selfCheck() {
  const listed = () => [...document.querySelectorAll("#kernels tbody tr[data-index]")].map(line => Number(line.dataset.index));
  const result = { sorts: [], filters: {}, zooms: [], points: document.querySelectorAll(".point").length, spans: lanes.reduce((sum, lane) => sum + lane.spans.length, 0) };
  document.querySelectorAll("#kernels th button").forEach(button => {
    for (let click = 0; click < 2; click++) {
      button.click();
      result.sorts.push({ column: button.querySelector(".title").textContent, direction: button.parentNode.getAttribute("aria-sort"), order: listed() });
    }
  });
  const filter = find("#filter");
  if (filter) for (const words of ["gemm", "MLP model.py", "no kernel has this name", ""]) {
    filter.value = words;
    filter.dispatchEvent(new Event("input"));
    result.filters[words] = listed();
  }
  if (canvas.isConnected) {
    const box = canvas.getBoundingClientRect(), at = part => ({ clientX: box.left + GUTTER + part * plotWidth, clientY: box.top + 10, bubbles: true, cancelable: true });
    const step = (name, act) => { act(); result.zooms.push({ name, from: view[0] - whole[0], to: view[1] - whole[0], whole: whole[1] - whole[0] }); };
    step("start", () => {});
    step("wheel", () => canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -300, ...at(0.5) })));
    step("drag", () => { canvas.dispatchEvent(new PointerEvent("pointerdown", at(0.25))); canvas.dispatchEvent(new PointerEvent("pointermove", at(0.75))); canvas.dispatchEvent(new PointerEvent("pointerup", at(0.75))); });
    step("key", () => canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "0" })));
    canvas.dispatchEvent(new PointerEvent("pointermove", at(0.001)));
    result.tip = tip.textContent;
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    result.colours = new Set(new Uint32Array(pixels.buffer)).size;
  }
  document.querySelectorAll(".point").forEach(point => point.dispatchEvent(new FocusEvent("focus")));
  if (result.points) {
    find(".point").dispatchEvent(new MouseEvent("click"));
    const line = find("tr.found");
    result.revealed = { index: Number(line.dataset.index), open: line.nextSibling.className, focused: line.contains(document.activeElement) };
    line.querySelector(".open").click();
  }
  document.querySelectorAll("#kernels .open").forEach(each => each.click());
  setTimeout(() => {  // policies report later than they refuse
    result.elements = [...new Set([...document.querySelectorAll("body *")].map(each => each.tagName.toLowerCase()))].sort();
    result.handlers = [...document.querySelectorAll("*")].flatMap(each => each.getAttributeNames()).filter(name => name.startsWith("on"));
    result.links = [...document.querySelectorAll("a")].map(each => each.getAttribute("href"));
    result.names = [...document.querySelectorAll("#kernels dd.cut .code")].map(each => each.textContent);
    result.wider = document.documentElement.scrollWidth - innerWidth;
    result.failures = failures;
    document.documentElement.dataset.selfCheck = JSON.stringify(result);
  }, 50);
}

drawHead();
drawLists();
drawCategories();
drawKernels();
drawRoofline();
startTimeline();
drawCasesModulesAndSteps();
const redraw = () => { fitLabels(); drawRoofline(); if (canvas.isConnected) drawTimeline(); };
addEventListener("resize", redraw);
for (const query of ["print", "(prefers-color-scheme: dark)"]) matchMedia(query).addEventListener("change", redraw);
addEventListener("beforeprint", redraw);
if (location.hash === "#self-check") selfCheck();
