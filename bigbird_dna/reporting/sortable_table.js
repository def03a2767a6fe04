"use strict";
// The table of a page: sorting by a click on a heading, and searching.
(() => {
  const table = document.getElementById("table");
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  document.documentElement.classList.add("js");

  // Sorting. Empty cells stay at the end in either order.
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
    button.append(...Array.from(head.childNodes, (node) => node.cloneNode(true)));
    // Browsers do not repeat buttons in the header of each printed page.
    const paper = document.createElement("span");
    paper.className = "paper";
    paper.append(...head.childNodes);
    paper.setAttribute("aria-hidden", "true");
    head.append(button, paper);
    button.addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      // The first click sorts numbers from the largest, text from A.
      const first = head.classList.contains("n") ? "descending" : "ascending";
      const wanted = now ? (now === "ascending" ? "descending" : "ascending") : first;
      sortBy(column, wanted === "descending");
    });
  });

  // Searching: a row must contain every word.
  const search = document.getElementById("search");
  const boxes = Array.from(document.querySelectorAll("input.group"));
  const count = document.getElementById("count");
  const haystack = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    let visible = 0;
    for (const row of rows) {
      const inGroup = !boxes.length || shown.has(row.dataset.g);
      const keep = inGroup && words.every((word) => haystack.get(row).includes(word));
      row.hidden = !keep;
      visible += keep;
    }
    count.textContent = `${visible.toLocaleString("en")} of ${rows.length.toLocaleString("en")} ${table.dataset.what}`;
  }
  search.addEventListener("input", filter);
  boxes.forEach((box) => box.addEventListener("change", filter));
  filter();
})();
