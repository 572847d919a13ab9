// The tables stand in the page; DataTables lets readers sort, search, copy and save them.
const one = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const chosen = (id) => one(`#${id}`)?.value ?? "";
const measure = () => one("#metric").selectedOptions[0].textContent;

/** Append an element with a text to a parent and return it. Texts never become markup. */
function add(parent, tag, text = "", attributes = {}) {
  const element = Object.assign(document.createElement(tag), attributes);
  element.textContent = text;
  parent.append(element);
  return element;
}

/** Return a text as markup that shows it: DataTables reads titles of columns as markup. */
const markup = (text) => new Option(text).innerHTML;

/** Return what the page holds, compressed by gzip, in base64. */
function unpack(selector) {
  const bytes = Uint8Array.from(atob(one(selector).textContent), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}

const data = await unpack("#data").json();
for (const name of ["pairs", "zeroShot", "cells", "steps"]) {
  data[name] = data[name][0].map((_, row) => data[name].map((column) => column[row]));
}
const library = new Blob([await unpack("#library").arrayBuffer()], { type: "text/javascript" });
const { default: DataTable } = await import(URL.createObjectURL(library));

// Every table --------------------------------------------------------------------------------------------------------

/** Return the options of a table. Saved cells have all digits where the page shows fewer. */
function options(filename, search) {
  const body = (_html, _row, _column, cell) =>
    cell.dataset.reads === cell.textContent ? "" : cell.dataset.order ?? cell.textContent;
  const exportOptions = { format: { body } };
  return {
    paging: false,
    info: false,
    autoWidth: false,
    order: [],
    language: { emptyTable: "No rows", zeroRecords: "No row matches the search" },
    layout: {
      topStart: {
        buttons: [
          { extend: "copyHtml5", text: "Copy", title: null, messageTop: null, messageBottom: null, exportOptions },
          { extend: "csvHtml5", text: "Save as CSV", filename, exportOptions },
        ],
      },
      topEnd: { search: { text: search } },
      bottomStart: null,
      bottomEnd: null,
    },
  };
}

/** Make a table interactive and put its buttons and its search above the part that scrolls. */
function start(table, settings) {
  const api = new DataTable(table, settings);
  table.closest(".scroll").before(one(".dt-layout-row", api.table().container()));
  return api;
}

/** Let readers sort, search and save a table below the grid. */
function enhance(table) {
  if (DataTable.isDataTable(table)) return new DataTable.Api(table);
  const { name } = table.dataset;
  const settings = options(name, "Search");
  if (!data.tables[name]) return start(table, settings);
  const { columns, headers, texts } = data.tables[name];
  const render = DataTable.render.text();
  settings.columns = columns.map((title, number) => ({
    title: markup(title),
    render,
    cellType: number ? "td" : "th",
    className: number < headers || texts.includes(title) ? "text" : "",
    createdCell: (cell) => number || (cell.scope = "row"),
  }));
  settings.data = data.tables[name].rows[chosen("metric")];
  return start(table, settings);
}

// The grid -----------------------------------------------------------------------------------------------------------

/** Return the name of the file that the grid is saved to: its metric, and what it shows if these are no values. */
function gridName() {
  const view = { value: "", baseline: `-minus-${data.baseline}`, published: "-minus-published" }[chosen("view")];
  return chosen("metric").replace("@", "-") + view;
}

/** Return what the signs behind a value mean. */
const meaning = ({ marks = "", flaw }) =>
  [...marks].map((sign) => (sign === "§" ? flaw : one(`#grid [data-sign="${sign}"]`)?.textContent) ?? sign).join("; ");

/** Return the shown table of the grid. */
function grid() {
  const table = one(".metric.chosen table");
  if (DataTable.isDataTable(table)) return new DataTable.Api(table);
  for (const cell of table.querySelectorAll("td")) {
    const button = document.createElement("button");
    button.append(...cell.childNodes);
    button.title = meaning(cell.dataset);
    cell.append(button);
  }
  return start(table, {
    ...options(gridName, "Search systems"),
    columnDefs: [
      { targets: 0, orderSequence: ["asc", "desc", ""], searchable: true, type: "string" },
      { targets: "_all", orderSequence: ["desc", "asc", ""], searchable: false, type: "num" },
    ],
  });
}

/** Show the value of each cell, or its difference to the baseline or to the published value. */
function show(api, view) {
  const cells = api.cells().nodes().toArray().filter((cell) => "order" in cell.dataset && !cell.classList.contains("none"));
  api.table().node().dataset.view = view;
  for (const cell of cells) {
    cell.dataset.value ??= cell.dataset.order;
    if (view === "value") {
      cell.classList.remove("below");
      one("button", cell).firstChild.data = parseFloat(cell.dataset.value).toFixed(4);
      cell.dataset.order = cell.dataset.value;
    } else {
      const difference = parseFloat(cell.dataset[view]);
      cell.classList.toggle("below", difference < 0);
      one("button", cell).firstChild.data = cell.dataset[view] ?? "–";
      cell.dataset.order = Number.isNaN(difference) ? "-9" : difference;
    }
  }
  api.rows().invalidate("dom");
}

/** Hide the columns and rows that the filters leave out. */
function filter(api) {
  const [task, domain, family] = ["task", "domain", "family"].map(chosen);
  for (const column of api.columns().indexes().toArray().filter((column) => column > 0)) {
    const { mean, ...of } = api.column(column).header().dataset;
    const matches = (!task || of.task === task) && (!domain || of.domain === domain);
    api.column(column).visible(mean === undefined ? matches : !task && !domain, false);
  }
  const familyOf = (row) => data.families[one("th", api.row(row).node()).textContent];
  api.search.fixed("filters", (_text, _row, index) => !family || familyOf(index) === family);
  api.draw();
}

/** Show the chosen metric, everywhere on the page. */
function showMetric() {
  const before = grid();
  const [order, search] = [before.order(), before.search()];
  for (const part of all(".metric")) part.classList.toggle("chosen", part.dataset.metric === chosen("metric"));
  const api = grid();
  api.search(search);
  show(api, chosen("view"));
  filter(api.order(order));
  for (const [name, { rows }] of Object.entries(data.tables)) {
    const table = one(`#${name}-table`);
    if (table) enhance(table).clear().rows.add(rows[chosen("metric")]).draw();
  }
  compare();
}

// Two systems --------------------------------------------------------------------------------------------------------

/** Return the values of a system as the grid has them, by the keys of the columns. */
function values(system) {
  const api = grid();
  const row = api.rows().nodes().toArray().find((node) => one("th", node).textContent === system);
  const columns = api.columns().indexes().toArray().slice(1);
  return Object.fromEntries(columns.map((column) => {
    const { value, order } = api.cell(row, column).node().dataset;
    return [api.column(column).header().dataset.key, Number(value ?? order).toFixed(4)];
  }));
}

/** Return a number with its sign. */
const signed = (number, digits) => (number > 0 ? "+" : "") + number.toFixed(digits);

/** Return the ends of an interval as a text; an unknown interval is empty. */
const ends = (low, high) => (low === null ? "" : `[${low.toFixed(4)}, ${high.toFixed(4)}]`);

/** Return a p value with two digits; an unknown one is empty. */
const shortP = (p) => (p === null ? "" : String(Number(p.toPrecision(2))));

/** Return the rows of a pair in the chosen metric, and whether they are of the second system minus the first. */
function ofPair(rows, first, second) {
  const of = (...pair) => rows.filter((row) => [chosen("metric"), ...pair].every((name, n) => row[n] === name));
  const own = of(first, second);
  return own.length ? [own, false] : [of(second, first), true];
}

/** Turn the interval of a difference round, if the pair is the other way round. */
const turned = (low, high, back) => (low === null || !back ? [low, high] : [-high, -low]);

/** Add the row of the means of two systems over the datasets that are zero-shot for both. */
function addMean(rows, systems) {
  const [[found], back] = ofPair(data.zeroShot, ...systems);
  if (!found || found[3] < 2) return;
  const [count, mean, other, low, high, p] = found.slice(3);
  const [first, second] = back ? [other, mean] : [mean, other];
  const interval = turned(low, high, back);
  const kind = data.zeroShotSaid ? " (zero-shot for both)" : "";
  rows.push([`mean of ${count}${kind}`, first.toFixed(4), second.toFixed(4), signed(first - second, 4),
    ends(...interval), shortP(p), "", ""]);
}

/** Compare the two chosen systems on each dataset. */
function compare() {
  if (!one("#pair-table")) return;
  const systems = [chosen("first"), chosen("second")];
  const [tests, back] = ofPair(data.pairs, ...systems);
  const sign = back ? -1 : 1;
  const [ofFirst, ofSecond] = systems.map(values);
  const rows = [];
  addMean(rows, systems);
  for (const [dataset, difference, low, high, p, said, , effect] of tests.map((row) => row.slice(3))) {
    const interval = turned(low, high, back);
    rows.push([dataset, ofFirst[dataset], ofSecond[dataset], signed(sign * difference, 4), ends(...interval), shortP(p),
      said, effect === null ? "" : signed(sign * effect, 2)]);
  }
  enhance(one("#pair-table")).clear().rows.add(rows).draw();
  one("#pair-caption").textContent = `${measure()}: ${systems.join(" minus ")}`;
  one("#pair-reason").textContent = tests.some((row) => row[9])
    ? "Planned, or a gain over a first stage: interval, p and verdict are of the paired t test, corrected for all such differences."
    : `Not planned: p and verdict are of the randomised Tukey HSD test, because ${data.systems.length * (data.systems.length - 1) / 2} pairs could be chosen. Each 95 % interval is of its pair alone.`;
}

// A cell -------------------------------------------------------------------------------------------------------------

const verdicts = Map.groupBy(all("#verdicts-table tbody tr"), ({ cells }) =>
  JSON.stringify([...cells].slice(0, 3).map((cell) => cell.textContent)));

// What a dialog says by itself, or does not need beside a value.
const SAID = new Set(["system", "dataset", "over", "queries", "value", "mean", "interval", "status"]);

/** Return the texts of a row of a table by metric, by its columns, but for what a dialog says by itself. */
function facts(name, ...keys) {
  const { columns, rows } = data.tables[name];
  const row = rows[chosen("metric")].find((cells) => keys.every((key, number) => cells[number] === key));
  return row ? columns.map((column, number) => [column, row[number]]).filter(([column]) => !SAID.has(column)) : [];
}

/** Show all that is known of a cell. */
function open(cell) {
  const api = grid();
  const { column } = api.cell(cell).index();
  const { key, mean } = api.column(column).header().dataset;
  const system = one("th", cell.parentNode).textContent;
  const parts = mean === undefined ? data.parts[key] : [];
  const about = mean === undefined && data.cells.find(([name, dataset]) => name === system && dataset === key);
  const dialog = one("#cell");
  const title = mean === undefined ? key : one(".dt-column-title", api.column(column).header()).textContent;
  one("h2", dialog).textContent = `${system} on ${title}, ${measure()}`;
  const list = one("dl", dialog);
  list.replaceChildren();
  const lines = [
    ["value", cell.dataset.reads ?? cell.dataset.value ?? cell.dataset.order],
    ["", cell.dataset.detail],
    ["flaw", cell.dataset.flaw],
    ["deviation over seeds", one("small", cell)?.textContent],
    ["95 % interval", mean === undefined ? cell.dataset.interval : ""],
    ["queries", about?.[2]],
    ["precision", about?.[3]],
    ["mean of", parts.join(", ")],
    ...(mean === undefined ? facts("baseline", system, key) : facts("across", system, key)),
  ];
  for (const [name, text] of lines.filter(([, text]) => text)) {
    add(list, "dt", name);
    add(list, "dd", text);
  }
  showVerdicts(one(".cell-verdicts", dialog), verdicts.get(JSON.stringify([system, key, measure()])) ?? []);
  listQueries(one(".cell-list", dialog), system, key);
  showSteps(one(".cell-steps", dialog), mean === undefined ? stepsOf(system, parts.length ? parts : [key]) : []);
  dialog.showModal();
  dialog.scrollTop = 0;
}

/** Return the numbers of the steps of a system, or of those of its seeds, on datasets, each once. */
function stepsOf(system, datasets) {
  const of = (member, dataset) => data.steps.filter(([name, on]) => name === member && on === dataset);
  const rows = (data.seeds[system] ?? [system]).flatMap((member) => datasets.flatMap((dataset) => of(member, dataset)));
  return [...new Set(rows.map(([, , number]) => number))];
}

/** Show the reference values of a cell. */
function showVerdicts(place, rows) {
  place.replaceChildren();
  if (!rows.length) return;
  add(place, "h3", "Reference values");
  const table = add(place, "table");
  table.append(one("#verdicts-table thead").cloneNode(true), document.createElement("tbody"));
  for (const row of rows) table.tBodies[0].append(row.cloneNode(true));
  for (const row of table.rows) for (let n = 0; n < 3; n += 1) row.cells[0].remove();
}

let perQuery, retrieved;

/** Show the documents of a query: grades, matching words, and ranks in all systems. */
function showDocuments(place, dataset, query) {
  const { systems, queries } = retrieved[dataset];
  place.replaceChildren();
  add(place, "h3", `Documents of the query ${query}`);
  const scroll = add(place, "div", "", { className: "scroll query", tabIndex: 0, role: "region" });
  scroll.setAttribute("aria-label", "Documents of the query");
  const table = add(scroll, "table");
  const head = table.createTHead().insertRow();
  const titles = ["document", "grade", "matching query words", ...systems.map((name) => `rank with ${name}`)];
  titles.forEach((title, n) => add(head, "th", title, { scope: "col", className: n && n !== 2 ? "" : "text" }));
  const body = table.createTBody();
  for (const [title, text, grade, words, ranks] of queries[query]) {
    const row = body.insertRow();
    const document = add(row, "th", "", { scope: "row", className: "text" });
    add(document, "strong", title);
    document.append(` ${text}`);
    add(row, "td", grade ?? "not judged");
    add(row, "td", words, { className: "text" });
    for (const rank of ranks) add(row, "td", rank || "–");
  }
  place.scrollIntoView({ block: "nearest" });
}

/** List the queries of a cell by their difference to another system, or by value. Only the first metric has them. */
async function listQueries(place, system, dataset) {
  perQuery ??= await unpack("#per-query").json();
  retrieved ??= await unpack("#documents").json();
  place.replaceChildren();
  const found = perQuery[dataset];
  const others = data.systems.filter((name) => name !== system && name in (found?.values ?? {}));
  const alone = !others.length;
  if (!(system in (found?.values ?? {})) || one("#metric").selectedIndex) return;
  add(place, "h3", "All queries");
  const label = add(place, "label", "minus ");
  const choice = add(label, "select");
  for (const name of others) add(choice, "option", name);
  choice.value = others.includes(data.baseline) ? data.baseline : others[0] ?? "";
  if (alone) label.remove();
  const part = add(place, "div");
  const documents = add(place, "div");
  const withDocuments = retrieved[dataset]?.queries ?? {};
  const hint = found.ids.some((id) => id in withDocuments)
    ? "Select a query for its documents."
    : `“beirgrid show ${system} ${dataset} QUERY” prints the documents of a query.`;
  const opens = (td, id) => {
    if (!(id in withDocuments)) return;
    td.replaceChildren();
    add(td, "button", id, { type: "button", title: "Show its documents" })
      .addEventListener("click", () => showDocuments(documents, dataset, id));
  };
  const list = () => {
    part.replaceChildren();
    const other = choice.value;
    const own = found.values[system];
    const of = found.values[other];
    let rows = found.ids.map((id, n) => [id, own[n], found.texts[n]]).sort((a, b) => a[1] - b[1]);
    let titles = ["query", system, "text"];
    let told = `${found.count} queries, the lowest values first.`;
    if (!alone) {
      const [above, below] = [found.above[system][other], found.above[other][system]];
      rows = found.ids.map((id, n) => [id, Number((own[n] - of[n]).toFixed(4)), own[n], of[n], found.texts[n]]);
      rows.sort((a, b) => a[1] - b[1]);
      titles = ["query", "difference", system, other, "text"];
      told = `The largest losses first. Of ${found.count} queries, ${above} higher, ${found.count - above - below} equal, ${below} lower.`;
    }
    const chosen = alone ? "with the lowest values" : "on which systems differ most";
    const cut = found.ids.length < found.count ? ` Listed: the ${found.ids.length} ${chosen}.` : "";
    add(part, "p", `${told}${cut} ${hint}`);
    const scroll = add(part, "div", "", { className: "scroll", tabIndex: 0, role: "region" });
    scroll.setAttribute("aria-label", "Queries by their difference");
    const render = DataTable.render.text();
    start(add(scroll, "table"), {
      ...options(alone ? `${system}-${dataset}` : `${system}-minus-${other}-${dataset}`, "Search queries"),
      columns: titles.map((title, n) => ({
        title: markup(title), render, className: n % (titles.length - 1) ? "" : "text",
        createdCell: (td, id) => n || opens(td, id),
      })),
      data: rows,
    });
  };
  choice.addEventListener("change", list);
  list();
}

/** Show how a cell was made. */
function showSteps(place, steps) {
  place.replaceChildren();
  if (!steps.length) return;
  add(place, "h3", "How it was made");
  for (const number of steps) {
    const step = one(`#step-${number}`).cloneNode(true);
    step.removeAttribute("id");
    add(step, "button", "Copy the command", { type: "button", className: "copy" });
    place.append(step);
  }
}

/** Copy the command of a step, or select it where the browser does not let a page copy. */
async function copy(button) {
  const command = one("pre", button.parentNode);
  getSelection().selectAllChildren(command);
  await navigator.clipboard?.writeText(command.textContent);
  button.textContent = "Copied";
}

// Events -------------------------------------------------------------------------------------------------------------

one("#metric").addEventListener("change", showMetric);
one("#view").addEventListener("change", () => {
  show(grid(), chosen("view"));
  filter(grid());
});
for (const id of ["task", "domain", "family"]) one(`#${id}`)?.addEventListener("change", () => filter(grid()));
for (const id of ["first", "second"]) one(`#${id}`)?.addEventListener("change", compare);
one("#grid").addEventListener("click", ({ target }) => {
  const cell = target.closest(".grid td");
  if (cell) open(cell);
});
one("#cell").addEventListener("click", ({ target }) => target.matches(".copy") && copy(target));

grid();
if (one("#second")) {
  const [first, second] = data.compare.length ? data.compare : data.systems;
  [one("#first").value, one("#second").value] = [first, second];
  compare();
}
const metrics = all(".metric").map((part) => part.dataset.metric);
// A long table costs time: each becomes interactive when a reader comes near it.
const near = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (isIntersecting) {
      near.unobserve(target);
      enhance(target);
    }
  }
}, { rootMargin: "100%" });
all("table[id]").forEach((table) => near.observe(table));
addEventListener("beforeprint", () => {
  all("table[id]").forEach(enhance);
  one("#later").append(...all("#grid .metric:not(.chosen)"));
});
addEventListener("afterprint", () => one("#grid .controls").after(...all(".metric").sort((a, b) =>
  metrics.indexOf(a.dataset.metric) - metrics.indexOf(b.dataset.metric))));
document.documentElement.dataset.ready = "";
