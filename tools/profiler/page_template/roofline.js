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
