"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const body = document.getElementById("table").tBodies[0];
  const rows = Array.from(body.rows);
  const numbers = data.name.map((_, i) => i);

  // Drawing. Colors are classes (g0 … for groups, s0 … for curves) defined by the style sheet, so that one
  // drawing serves light mode, dark mode and print. Groups differ in shape as well as in color.
  function svg(name, attributes, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) {
      made.setAttribute(key, typeof value === "number" ? Number(value.toFixed(2)) : value);
    }
    made.append(...children);
    return made;
  }
  function figure(width, height, label, ...parts) {
    const box = { class: "figure", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label };
    return svg("svg", box, ...parts);
  }
  // A plot with a link that saves it, with the colors that are shown.
  const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font", "background-color"];
  function framed(drawn, name) {
    const frame = document.createElement("div"), link = document.createElement("a");
    Object.assign(link, { className: "file", download: `${name}.svg`, href: "#", textContent: "Download SVG" });
    link.addEventListener("click", () => {
      const copy = drawn.cloneNode(true), copies = [copy, ...copy.querySelectorAll("*")];
      [drawn, ...drawn.querySelectorAll("*")].forEach((one, k) => {
        const style = getComputedStyle(one);
        for (const key of KEPT) copies[k].style.setProperty(key, style.getPropertyValue(key));
      });
      link.href = `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
    });
    frame.append(drawn, link);
    return frame;
  }
  const path = (kind, d) => svg("path", { class: kind, d });
  const decimal = (value) => value.toFixed(3);
  const signed = (value) => (value < 0 ? "\u2212" : "+") + decimal(Math.abs(value));
  const at = (...values) => values.map((value) => value.toFixed(1)).join(" ");

  // Values from low to high with a tick every step, drawn from first to last.
  class Axis {
    constructor(low, high, step, first, last) {
      Object.assign(this, { low, high, step, first, last });
    }
    static of(values, first, last, upper) {
      const low = values.reduce((a, b) => Math.min(a, b));
      const high = upper ?? values.reduce((a, b) => Math.max(a, b));
      const span = Math.max(high - low, 1e-3);
      const power = 10 ** Math.floor(Math.log10(span));
      const step = power * [0.2, 0.5, 1, 2].find((factor) => span / (power * factor) <= 6);
      const start = Math.floor(low / step + 1e-9) * step;
      const end = Math.ceil(high / step - 1e-9) * step;
      return new Axis(start, end > start ? end : start + step, step, first, last);
    }
    at(value) {
      return this.first + ((value - this.low) / (this.high - this.low)) * (this.last - this.first);
    }
    ticks() {
      const digits = Math.max(0, -Math.floor(Math.log10(this.step) + 1e-9));
      return Array.from({ length: Math.round((this.high - this.low) / this.step) + 1 }, (_, i) => {
        const value = this.low + this.step * i;
        const shown = (Math.abs(value) > 1e-12 ? value : 0).toFixed(digits);
        return [this.at(value), shown.replace("-", "\u2212")];
      });
    }
  }

  const TOP = 8, LEFT = 56, RIGHT = 384, SIZE = RIGHT - LEFT;
  function grid(axis, bottom, label) {
    const middle = (axis.first + axis.last) / 2;
    return [
      ...axis.ticks().flatMap(([x, shown]) => [
        path("grid", `M${at(x, TOP)}V${bottom}`),
        svg("text", { class: "tick", x, y: bottom + 15, "text-anchor": "middle" }, shown),
      ]),
      svg("text", { x: middle, y: bottom + 33, "text-anchor": "middle" }, label),
    ];
  }
  function square(axis, xLabel, yLabel, diagonal, ...parts) {
    const middle = TOP + SIZE / 2;
    const turned = { x: 14, y: middle, "text-anchor": "middle", transform: `rotate(-90 14 ${middle})` };
    return figure(
      400, TOP + SIZE + 44, `${yLabel} over ${xLabel}`,
      ...grid(axis, TOP + SIZE, xLabel),
      ...axis.ticks().flatMap(([x, shown]) => {
        const y = TOP + RIGHT - x;
        return [
          path("grid", `M${LEFT} ${at(y)}H${RIGHT}`),
          svg("text", { class: "tick", x: LEFT - 6, y: y + 4, "text-anchor": "end" }, shown),
        ];
      }),
      svg("text", turned, yLabel),
      ...(diagonal ? [path("diagonal", `M${LEFT} ${TOP + SIZE}L${RIGHT} ${TOP}`)] : []),
      ...parts,
    );
  }

  // One dot per track: circle, square, triangle and diamond in rotation; larger if there are few tracks.
  const SCALE = numbers.length > 100 ? 1 : 1.6;
  const SHAPES = [
    "M-2.4 0a2.4 2.4 0 1 0 4.8 0a2.4 2.4 0 1 0 -4.8 0",
    "M-2.1 -2.1h4.2v4.2h-4.2z",
    "M0 -2.9L2.6 1.9H-2.6z",
    "M0 -3L3 0L0 3L-3 0z",
  ];
  const dots = [];
  function dot(i, x, y, title) {
    const made = path(`dot g${data.group[i] % data.groupColors}`, SHAPES[data.group[i] % 4]);
    made.setAttribute("transform", `translate(${at(x, y)}) scale(${SCALE})`);
    made.dataset.i = i;
    made.append(svg("title", {}, `${data.name[i]}: ${title}`));
    dots.push(made);
    return made;
  }
  // Vertical offset of each dot from the center line, so that neighboring dots do not hide each other.
  function heaps(places, height) {
    const width = 4 * SCALE;
    const bins = places.map((x) => Math.floor(x / width));
    const sizes = new Map();
    const order = bins.map((bin) => {
      sizes.set(bin, (sizes.get(bin) ?? 0) + 1);
      return sizes.get(bin) - 1;
    });
    const gap = Math.min(width, height / Math.max(...sizes.values()));
    // 0, +1, -1, +2, -2 … from the center outwards.
    return order.map((place) => gap * (place % 2 ? (place + 1) / 2 : -place / 2));
  }
  function quantile(sorted, share) {
    const place = share * (sorted.length - 1), low = Math.floor(place);
    return sorted[low] + (place - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
  }
  // One row per group: its tracks, the box of the interquartile range and the median. For a difference, the
  // axis includes zero, which is marked by a line.
  const WIDE = innerWidth < 640 ? 400 : 640; // smaller on phones, where the text would become too small
  function strips(values, label, difference) {
    const members = data.groups.map((name, group) => ({
      name, tracks: numbers.filter((i) => data.group[i] === group && data.counted[i] && values[i] !== null),
    }));
    const largest = [...members].sort((a, b) => b.tracks.length - a.tracks.length).slice(0, data.maxStrips);
    const shown = members.filter((one) => one.tracks.length && largest.includes(one));
    const all = shown.flatMap(({ tracks }) => tracks.map((i) => values[i]));
    const axis = Axis.of(difference ? [...all, 0] : all, 104, WIDE - 20, difference ? undefined : 1);
    const height = 62, bottom = TOP + height * shown.length, half = height / 2 - 7;
    const parts = grid(axis, bottom, label);
    if (difference) parts.push(path("zero", `M${at(axis.at(0), TOP)}V${bottom}`));
    shown.forEach(({ name, tracks }, row) => {
      const middle = TOP + height * (row + 0.5);
      const short = name.length <= 14 ? name : `${name.slice(0, 13)}\u2026`;
      const place = { class: "name", x: axis.first - 12, y: middle + 4, "text-anchor": "end" };
      parts.push(svg("text", place, svg("title", {}, name), short));
      const places = tracks.map((i) => axis.at(values[i]));
      const offsets = heaps(places, 2 * half);
      const shownValue = difference ? signed : decimal;
      parts.push(...tracks.map((i, k) => dot(i, places[k], middle + offsets[k], shownValue(values[i]))));
      places.sort((a, b) => a - b);
      const [low, median, high] = [0.25, 0.5, 0.75].map((share) => quantile(places, share));
      const box = { class: "box", x: low, y: middle - half, width: Math.max(high - low, 0.5), height: 2 * half, rx: 3 };
      parts.push(svg("rect", box), path("median", `M${at(median, middle - half - 3)}v${2 * half + 6}`));
    });
    return figure(WIDE, bottom + 40, `${label} by group`, ...parts);
  }
  function scatter({ name, auroc, delta }) {
    const known = numbers.filter((i) => data.counted[i] && auroc[i] !== null);
    const low = known.reduce((least, i) => Math.min(least, data.auroc[i], auroc[i]), 0.5);
    const axis = Axis.of([low], LEFT, RIGHT, 1);
    const drawn = known.map((i) => {
      const title = `${decimal(data.auroc[i])} evaluated, ${decimal(auroc[i])} ${name} (${signed(delta[i])})`;
      return dot(i, axis.at(auroc[i]), TOP + RIGHT - axis.at(data.auroc[i]), title);
    });
    return square(axis, `AUROC, ${name}`, "AUROC, evaluated", true, ...drawn);
  }
  for (const place of document.querySelectorAll("[data-other]")) {
    const other = data.others.find(({ name }) => name === place.dataset.other);
    const name = place.dataset.other;
    place.append(framed(scatter(other), `auroc_${name}`), framed(strips(other.delta, "difference of AUROC", true), `difference_${name}`));
  }
  const legend = document.getElementById("legend");
  if (!legend) return; // no track can be evaluated
  document.getElementById("strips").append(
    framed(strips(data.auroc, "AUROC"), "auroc"),
    framed(strips(data.auprc, "AUPRC"), "auprc"),
  );

  // Curves: corners [false positives, true positives] from (0, 0) to all rows, stored as differences.
  function corners(i) {
    const points = [];
    for (let k = 0, x = 0, y = 0; k < data.curves[i].length; k += 2) {
      points.push([(x += data.curves[i][k]), (y += data.curves[i][k + 1])]);
    }
    return points;
  }
  function rocPath(points) {
    const [n, m] = points[points.length - 1];
    return "M" + points.map(([x, y]) => at(LEFT + (SIZE * x) / n, TOP + SIZE * (1 - y / m))).join("L");
  }
  function precisionPath(points) {
    const m = points[points.length - 1][1];
    let d = "", before = 0;
    for (const [x, y] of points) {
      if (y <= before) continue;
      const height = at(TOP + SIZE * (1 - y / (x + y)));
      d += `${d ? "V" : `M${LEFT} `}${height}H${at(LEFT + (SIZE * y) / m)}`;
      before = y;
    }
    return d;
  }
  const roc = svg("g", {}), precision = svg("g", {});
  const unit = new Axis(0, 1, 0.2, LEFT, RIGHT);
  document.getElementById("plots").append(
    framed(square(unit, "false positive rate", "true positive rate", true, roc), "roc"),
    framed(square(unit, "recall", "precision", false, precision), "precision_recall"),
  );

  let chosen = []; // { i, slot }, oldest first
  function add(i) {
    if (chosen.length >= data.curveColors) chosen.shift();
    let slot = 0;
    while (chosen.some((one) => one.slot === slot)) slot++;
    chosen.push({ i, slot });
  }
  function toggle(i) {
    if (!data.curves[i]) return;
    if (chosen.some((one) => one.i === i)) chosen = chosen.filter((one) => one.i !== i);
    else add(i);
    show();
  }
  function choose(list) {
    chosen = [];
    list.forEach(add);
    show();
  }
  function legendItem({ i, slot }) {
    const item = document.createElement("li");
    const line = { class: "swatch", viewBox: "0 0 26 4", "aria-hidden": "true" };
    const figures = document.createElement("small");
    figures.textContent = ` AUROC ${decimal(data.auroc[i])}, AUPRC ${decimal(data.auprc[i])}`;
    const remove = document.createElement("button");
    remove.type = "button";
    remove.textContent = "\u00d7";
    remove.setAttribute("aria-label", `Remove ${data.name[i]}`);
    remove.addEventListener("click", () => toggle(i));
    item.append(svg("svg", line, path(`curve s${slot}`, "M0 2H26")), data.name[i], figures, remove);
    return item;
  }
  function show() {
    for (const [layer, draw] of [[roc, rocPath], [precision, precisionPath]]) {
      layer.replaceChildren(...chosen.map(({ i, slot }) => {
        const curve = path(`curve s${slot}`, draw(corners(i)));
        curve.append(svg("title", {}, data.name[i]));
        return curve;
      }));
    }
    legend.replaceChildren(...chosen.map(legendItem));
    const slots = new Map(chosen.map(({ i, slot }) => [i, slot]));
    for (const row of rows) {
      const slot = slots.get(Number(row.dataset.i));
      row.className = slot === undefined ? "" : `on s${slot}`;
      const box = row.querySelector(".choose");
      if (box) box.checked = slot !== undefined;
    }
    for (const one of dots) one.classList.toggle("on", slots.has(Number(one.dataset.i)));
  }

  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    // A click that selects text, for example to copy a name, does not toggle the row.
    if (row && (event.target.matches(".choose") || !String(getSelection()))) toggle(Number(row.dataset.i));
  });
  document.addEventListener("click", (event) => {
    const one = event.target.closest(".dot");
    if (one) toggle(Number(one.dataset.i));
  });
  document.getElementById("default").addEventListener("click", () => choose(data.chosen));
  document.getElementById("clear").addEventListener("click", () => choose([]));
  choose(data.chosen);
})();
