// The matrix as one plane: the scroll area is as large as all agents and tools, and holds the table of the part in
// view, which the server draws. Heads and names are sticky cells of that table. Cells are chosen by Ctrl-click or
// a drag; the choice lives here, by agent, server and tool, and so outlasts the part in view.
const area = document.querySelector("#matrix");
if (area) begin();

function begin() {
  const AHEAD = 8; // rows and columns drawn beyond the edge, so that a short scroll shows no gap
  const total = { rows: Number(area.dataset.agents), cols: Number(area.dataset.tools) };
  const chosen = new Map();
  const bar = document.querySelector("#matrix-bar");
  const mayEdit = document.body.classList.contains("can-approve");
  const plane = document.createElement("div");
  let asked = null;
  let size = null;

  const table = () => area.querySelector(".matrix-table");
  const at = (name) => Number(table().dataset[name]);

  function measure() {
    const cell = table().querySelector("tbody td");
    const name = table().querySelector("tbody th");
    size = {
      cell: cell.getBoundingClientRect(),
      names: name.getBoundingClientRect().width,
      heads: table().tHead.getBoundingClientRect().height,
    };
  }

  function place() {
    table().style.marginInlineStart = `${at("fromCol") * size.cell.width}px`;
    table().style.marginBlockStart = `${at("fromRow") * size.cell.height}px`;
    plane.style.inlineSize = `${size.names + total.cols * size.cell.width}px`;
    plane.style.blockSize = `${size.heads + total.rows * size.cell.height}px`;
    paint();
  }

  function wanted() {
    const row = Math.floor(area.scrollTop / size.cell.height);
    const col = Math.floor(area.scrollLeft / size.cell.width);
    const rows = Math.ceil(area.clientHeight / size.cell.height);
    const cols = Math.ceil(area.clientWidth / size.cell.width);
    return {
      row: Math.max(0, row - AHEAD),
      col: Math.max(0, col - AHEAD),
      rows: Math.min(60, rows + 2 * AHEAD),
      cols: Math.min(80, cols + 2 * AHEAD),
      inView: { row, col, rows, cols },
    };
  }

  const covers = (view) =>
    at("fromRow") <= view.row && at("fromCol") <= view.col
    && at("fromRow") + at("spanRows") >= Math.min(total.rows, view.row + view.rows)
    && at("fromCol") + at("spanCols") >= Math.min(total.cols, view.col + view.cols);

  async function load(force = false) {
    const part = wanted();
    if (!force && covers(part.inView)) return;
    asked?.abort();
    const mine = (asked = new AbortController());
    const url = new URL(location.href);
    for (const name of ["row", "col", "rows", "cols"]) url.searchParams.set(name, part[name]);
    url.searchParams.set("part", "window");
    try {
      const answer = await fetch(url, { signal: mine.signal, headers: { Accept: "text/html" } });
      if (!answer.ok || answer.redirected) return;
      const html = await answer.text();
      if (mine.signal.aborted) return;
      table().outerHTML = html;
      window.htmx?.process(table());
      place();
    } catch (problem) {
      if (problem.name !== "AbortError") throw problem;
    }
  }

  let waiting = 0;
  function soon() {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => load());
  }

  // Choosing.

  const key = (cell) => JSON.stringify([cell.closest("tr").dataset.a, cell.dataset.s, cell.dataset.t]);

  function paint() {
    for (const cell of table().querySelectorAll("tbody td")) cell.classList.toggle("chosen", chosen.has(key(cell)));
  }

  function tell() {
    bar.hidden = !chosen.size;
    bar.querySelector("[data-count]").textContent = `${chosen.size} selected`;
    const fields = bar.querySelector("[data-chosen]");
    fields.replaceChildren(...[...chosen.keys()].map((place) => {
      const field = document.createElement("input");
      field.type = "hidden";
      field.name = "slot";
      field.value = JSON.stringify([...JSON.parse(place), "as it is", null]);
      return field;
    }));
    paint();
  }

  function choose(cell, on) {
    if (on) chosen.set(key(cell), true);
    else chosen.delete(key(cell));
  }

  function between(first, last) {
    const rows = [...table().tBodies[0].rows];
    const place = (cell) => [rows.indexOf(cell.closest("tr")), cell.cellIndex];
    const [[top, left], [bottom, right]] = [place(first), place(last)];
    return rows.slice(Math.min(top, bottom), Math.max(top, bottom) + 1).flatMap((row) =>
      [...row.cells].slice(Math.min(left, right), Math.max(left, right) + 1).filter((cell) => cell.dataset.t !== undefined));
  }

  let from = null;
  let dragged = false;
  const cellOf = (event) => event.target.closest?.(".matrix-table td[data-t]");

  area.addEventListener("pointerdown", (event) => {
    if (!mayEdit || event.button !== 0 || event.pointerType === "touch") return;
    from = cellOf(event);
    dragged = false;
  });
  area.addEventListener("pointerover", (event) => {
    const cell = cellOf(event);
    if (!from || !cell || cell === from || !(event.buttons & 1) || !from.isConnected) return;
    dragged = true;
    for (const one of between(from, cell)) choose(one, true);
    paint();
  });
  document.addEventListener("pointerup", () => {
    if (dragged) tell();
    from = null;
  });

  area.addEventListener("click", (event) => {
    const cell = cellOf(event);
    if (!cell) return;
    if (dragged) {
      dragged = false;
      return;
    }
    if (mayEdit && (event.ctrlKey || event.metaKey || event.shiftKey || chosen.size)) {
      choose(cell, !chosen.has(key(cell)));
      tell();
      return;
    }
    const [agent, server, tool] = JSON.parse(key(cell));
    const url = `${area.dataset.why}?${new URLSearchParams({ agent, server, tool })}`;
    window.htmx.ajax("GET", url, { target: "#mcp-dialog-body", swap: "innerHTML" });
  });

  // By keyboard: arrows walk the cells, Enter asks why, the space bar chooses.

  area.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
    const here = document.activeElement.closest?.(".matrix-table td[data-t]");
    if (event.key === " " && here && mayEdit) {
      event.preventDefault();
      choose(here, !chosen.has(key(here)));
      tell();
      return;
    }
    if (!steps[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const rows = [...table().tBodies[0].rows];
    const [down, right] = steps[event.key];
    const next = here
      ? rows[rows.indexOf(here.closest("tr")) + down]?.cells[here.cellIndex + right]
      : table().querySelector("tbody td");
    next?.querySelector("button")?.focus();
  });

  bar?.querySelector("[data-clear]").addEventListener("click", () => {
    chosen.clear();
    tell();
  });
  bar?.addEventListener("htmx:afterRequest", () => bar.classList.remove("htmx-request"));

  document.querySelector("[data-pages]")?.setAttribute("hidden", "");
  for (const button of area.querySelectorAll("tbody button")) button.tabIndex = -1;
  area.prepend(plane);
  plane.append(table());
  measure();
  area.scrollTop = at("fromRow") * size.cell.height;
  area.scrollLeft = at("fromCol") * size.cell.width;
  place();
  load();
  area.addEventListener("scroll", soon, { passive: true });
  window.addEventListener("resize", soon);
  for (const topic of ["grants", "mcp_servers", "mcp_tools", "agents", "reset"]) {
    document.body.addEventListener(`live:${topic}`, () => load(true));
  }
}
