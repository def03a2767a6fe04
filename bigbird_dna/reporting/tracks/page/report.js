"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const table = document.getElementById("table");
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const byNumber = new Map(rows.map((row) => [Number(row.dataset.i), row]));
  document.documentElement.classList.add("js");

  // Sorting. Cells without a value stay at the end, whichever way.
  const text = (row, column) => row.cells[column].textContent.trim();
  const number = (value) => parseFloat(value.replace(/,/g, "").replace("\u2212", "-"));
  const order = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });
  const heads = Array.from(table.tHead.rows[0].cells);
  function sortBy(column, descending) {
    const numeric = heads[column].classList.contains("n");
    const keyed = rows.map((row) => {
      const value = text(row, column);
      return { row, key: numeric ? number(value) : value };
    });
    const empty = (key) => (numeric ? Number.isNaN(key) : key === "");
    const compare = numeric ? (a, b) => a - b : order.compare;
    keyed.sort((a, b) => {
      if (empty(a.key) || empty(b.key)) return empty(a.key) - empty(b.key);
      return descending ? compare(b.key, a.key) : compare(a.key, b.key);
    });
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[column].setAttribute("aria-sort", descending ? "descending" : "ascending");
    body.append(...keyed.map(({ row }) => row));
  }
  heads.forEach((head, column) => {
    if (head.classList.contains("pick")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    // Browsers don't repeat buttons in the header of each printed page.
    const paper = document.createElement("span");
    paper.className = "paper";
    paper.append(...head.childNodes);
    paper.setAttribute("aria-hidden", "true");
    head.append(button, paper);
    button.addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      // Figures begin with the greatest, words with A.
      const first = head.classList.contains("n") ? "descending" : "ascending";
      const wanted = now ? (now === "ascending" ? "descending" : "ascending") : first;
      sortBy(column, wanted === "descending");
    });
  });

  // Searching: every word must be in the row.
  const search = document.getElementById("search");
  const groups = Array.from(document.querySelectorAll("input.group"));
  const count = document.getElementById("count");
  const haystack = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = new Set(groups.filter((box) => box.checked).map((box) => box.value));
    let visible = 0;
    for (const row of rows) {
      const inGroup = !groups.length || shown.has(row.dataset.g);
      const keep = inGroup && words.every((word) => haystack.get(row).includes(word));
      row.hidden = !keep;
      visible += keep;
    }
    count.textContent = `${visible.toLocaleString("en")} of ${rows.length.toLocaleString("en")} tracks`;
  }
  search.addEventListener("input", filter);
  groups.forEach((box) => box.addEventListener("change", filter));
  filter();

  // Curves: [false positives, true positives] from none to all.
  function decode(encoded) {
    const bytes = atob(encoded);
    const points = [];
    let value = 0, scale = 1, fall = -1, x = 0, y = 0;
    for (let i = 0; i < bytes.length; i++) {
      const byte = bytes.charCodeAt(i);
      value += (byte & 127) * scale;
      scale *= 128;
      if (byte > 127) continue;
      if (fall < 0) {
        fall = value;
      } else {
        x += fall;
        y += value;
        points.push([x, y]);
        fall = -1;
      }
      value = 0;
      scale = 1;
    }
    return points;
  }
  const LEFT = 56, TOP = 8, SIZE = 328;
  function curvePath(kind, points) {
    const [n, m] = points[points.length - 1];
    const at = (value) => value.toFixed(1);
    if (kind === "roc") {
      return "M" + points.map(([x, y]) => `${at(LEFT + (SIZE * x) / n)} ${at(TOP + SIZE * (1 - y / m))}`).join("L");
    }
    let path = "", before = 0;
    for (const [x, y] of points) {
      if (y <= before) continue;
      const height = at(TOP + SIZE * (1 - y / (x + y)));
      path += `${path ? "V" : `M${LEFT} `}${height}H${at(LEFT + (SIZE * y) / m)}`;
      before = y;
    }
    return path;
  }

  const legend = document.getElementById("legend");
  if (!legend) return;
  const layers = Array.from(document.querySelectorAll("g.curves"));
  const dots = Array.from(document.querySelectorAll(".dot"));
  const SVG = "http://www.w3.org/2000/svg";
  let chosen = [];  // { i, slot }, the oldest first

  function free() {
    const taken = new Set(chosen.map(({ slot }) => slot));
    return Array.from({ length: data.slots }, (_, slot) => slot).find((slot) => !taken.has(slot));
  }
  function add(i) {
    if (chosen.length >= data.slots) chosen.shift();
    chosen.push({ i, slot: free() });
  }
  function toggle(i) {
    if (!data.curves[i]) return;
    if (chosen.some((one) => one.i === i)) chosen = chosen.filter((one) => one.i !== i);
    else add(i);
    draw();
  }
  function choose(list) {
    chosen = [];
    list.forEach(add);
    draw();
  }
  function draw() {
    const slots = new Map(chosen.map(({ i, slot }) => [i, slot]));
    const curves = chosen.map(({ i, slot }) => ({ slot, points: decode(data.curves[i]), row: byNumber.get(i) }));
    for (const layer of layers) {
      layer.replaceChildren(...curves.map(({ slot, points, row }) => {
        const path = document.createElementNS(SVG, "path");
        path.setAttribute("class", `curve s${slot}`);
        path.setAttribute("d", curvePath(layer.dataset.kind, points));
        const title = document.createElementNS(SVG, "title");
        title.textContent = text(row, 1);
        path.append(title);
        return path;
      }));
    }
    legend.replaceChildren(...chosen.map(({ i, slot }) => {
      const item = document.createElement("li");
      const swatch = document.createElementNS(SVG, "svg");
      swatch.setAttribute("class", "swatch");
      swatch.setAttribute("viewBox", "0 0 26 4");
      swatch.setAttribute("aria-hidden", "true");
      const line = document.createElementNS(SVG, "path");
      line.setAttribute("class", `curve s${slot}`);
      line.setAttribute("d", "M0 2H26");
      swatch.append(line);
      const figures = document.createElement("small");
      const cell = (name) => byNumber.get(i).querySelector(`[data-f="${name}"]`).textContent;
      figures.textContent = ` AUROC ${cell("auroc")}, AUPRC ${cell("auprc")}`;
      const remove = document.createElement("button");
      remove.type = "button";
      remove.textContent = "\u00d7";
      remove.setAttribute("aria-label", `Remove ${text(byNumber.get(i), 1)}`);
      remove.addEventListener("click", () => toggle(i));
      item.append(swatch, text(byNumber.get(i), 1), figures, remove);
      return item;
    }));
    for (const row of rows) {
      const slot = slots.get(Number(row.dataset.i));
      row.className = slot === undefined ? "" : `on s${slot}`;
      const box = row.querySelector(".choose");
      if (box) box.checked = slot !== undefined;
    }
    for (const dot of dots) dot.classList.toggle("on", slots.has(Number(dot.dataset.i)));
  }

  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    // A click that selects text, as to copy a name, chooses nothing.
    if (row && (event.target.matches(".choose") || !String(getSelection()))) toggle(Number(row.dataset.i));
  });
  document.addEventListener("click", (event) => {
    const dot = event.target.closest(".dot");
    if (dot) toggle(Number(dot.dataset.i));
  });
  document.getElementById("default").addEventListener("click", () => choose(data.chosen));
  document.getElementById("clear").addEventListener("click", () => choose([]));
  choose(data.chosen);
})();
