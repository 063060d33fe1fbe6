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
