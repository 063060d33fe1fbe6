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
