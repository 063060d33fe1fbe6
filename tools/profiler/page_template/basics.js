"use strict";
const failures = [];
addEventListener("error", event => failures.push(String(event.message)));
addEventListener("securitypolicyviolation", event => failures.push("refused: " + event.violatedDirective));

const { profile, timeline, categories: CATEGORIES } = JSON.parse(document.getElementById("data").textContent);
const LOOKS = {  // category -> colour, and whether it is hatched
  "gemm": ["blue"], "attention": ["orange"], "norm": ["green"], "activation and elementwise": ["sky"],
  "softmax and reduction": ["purple"], "copy and fill": ["yellow"], "moe and sorting": ["red"],
  "convolution": ["blue", true], "cache": ["yellow", true], "communication": ["red", true],
  "quantization": ["green", true], "other Triton": ["purple", true], "compiled code": ["orange", true], "unclassified": ["grey", true],
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
