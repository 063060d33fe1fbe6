// ---- The head, the advice and the lists

function drawHead() {
  find("#entry").textContent = profile.entry || "(no entry)";
  find("#device").textContent = `${profile.device || "unknown device"}${profile.architecture ? `, ${profile.architecture}` : ""}; `
    + `${plural(profile.calls, "call")} profiled${made(profile.made)}`;
  const tiles = [
    ["latency of a call", time(profile.call_us), `${profile.cases.length ? `mean of ${plural(profile.cases.length, "case")}` : "median"}, without the profiler`],
    ["device busy", time(profile.busy_us), "of a call"],
    ["idle", share(profile.idle_share), "of a call"],
    ["launches", count(profile.launches), "kernels per call"],
    ["median gap", time(profile.gap_us), "between two kernels, with the profiler"],
  ];
  find("#tiles").append(...tiles.map(([name, value, about]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, value, make("small", {}, about)))));
}

function made(about) {
  if (!about) return "";
  const software = [about.torch && `torch ${about.torch}`, about.triton && `Triton ${about.triton}`, about.platform].filter(Boolean);
  return ` on ${about.date.slice(0, 16).replace("T", " ")} UTC${software.length ? ` with ${software.join(", ")}` : ""}`;
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
      piece("idle", idle, `idle ${share(idle)}`, ["idle", time(Math.max(0, profile.call_us - profile.busy_us))]));
  } else find("#span").remove();
  find("#span-text").textContent = !(profile.busy_us > 0) ? "The device was never seen at work." : `Of ${time(profile.call_us)}, which a call takes without the profiler, the device is busy for `
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
    known(kernel.speed_of_light) ? `${share(kernel.speed_of_light, 0)} of what ${kernel.bound === "compute" ? "the device can compute" : "the device's memory can move"}` : "",
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

const LIMITS = { memory: "mem", compute: "alu" };

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
    { title: "limit", unit: "reached", value: row => row.speed_of_light, cell: row => [share(row.speed_of_light, 0), LIMITS[row.bound] ?? ""].join(" ").trim() },
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
