(function () {
  "use strict";

  function make(tag, properties) {
    return Object.assign(document.createElement(tag), properties);
  }

  // A click on a column header sorts the table: numbers by data-value, text alphabetically, undefined
  // values always last.
  function sortKey(row, column) {
    var cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
  }

  function compare(a, b, direction) {
    if (typeof a === "number" && typeof b === "number") return direction * (a - b);
    if (typeof a === "number") return -1;
    if (typeof b === "number") return 1;
    return direction * a.localeCompare(b, undefined, { numeric: true });
  }

  function sort(table, header) {
    var column = header.cellIndex;
    var ascending = header.getAttribute("aria-sort") === "none"
      ? !header.classList.contains("number")  // the largest numbers first
      : header.getAttribute("aria-sort") === "descending";
    table.querySelectorAll("thead th").forEach(function (other) { other.setAttribute("aria-sort", "none"); });
    header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    var body = table.tBodies[0];
    Array.from(body.rows)
      .map(function (row) { return { row: row, key: sortKey(row, column) }; })
      .sort(function (a, b) { return compare(a.key, b.key, ascending ? 1 : -1); })
      .forEach(function (entry) { body.appendChild(entry.row); });
  }

  var buttons = [];
  function makeSortable(part) {
    part.querySelectorAll("table[data-sortable]").forEach(function (table) {
      if (table.tBodies[0].rows.length < 2) return;
      table.querySelectorAll("thead th").forEach(function (header) {
        var button = make("button", { type: "button" });
        button.append(...header.childNodes);
        header.appendChild(button);
        buttons.push(button);
        header.setAttribute("aria-sort", "none");
        button.addEventListener("click", function () { sort(table, header); });
      });
    });
  }
  makeSortable(document);

  // Browsers repeat the header of a table on every printed page unless it holds a button.
  window.addEventListener("beforeprint", function () {
    buttons.forEach(function (button) {
      button.header = button.parentNode;
      button.replaceWith(...button.childNodes);
    });
  });
  window.addEventListener("afterprint", function () {
    buttons.forEach(function (button) {
      button.append(...button.header.childNodes);
      button.header.appendChild(button);
    });
  });

  // If there are more than ten rows, all but the first are compressed until a reader chooses them.
  function unpack(row) {
    var packed = row.dataset.packed;
    if (!packed) return;
    delete row.dataset.packed;
    if (typeof DecompressionStream === "undefined") {
      row.textContent = "This browser is too old to show this row.";
      return;
    }
    var bytes = Uint8Array.from(atob(packed), function (letter) { return letter.charCodeAt(0); });
    var stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    new Response(stream).text().then(function (html) {
      row.innerHTML = html;
      makeSortable(row);
    });
  }

  // The row explorer shows one row at a time.
  document.querySelectorAll("[data-explorer]").forEach(function (explorer, n) {
    var rows = Array.from(explorer.querySelectorAll("article"));
    if (!rows.length) return;
    var label = make("label", { textContent: explorer.dataset.label, htmlFor: "picker-" + n });
    var select = make("select", { id: "picker-" + n });
    rows.forEach(function (row) { select.add(new Option(row.dataset.title, row.id)); });
    function step(text, by) {
      var button = make("button", { type: "button", textContent: text });
      button.addEventListener("click", function () { show(select.selectedIndex + by); });
      return button;
    }
    var previous = step("Previous", -1);
    var next = step("Next", 1);
    function show(index) {
      rows.forEach(function (row, i) { row.hidden = i !== index; });
      unpack(rows[index]);
      select.selectedIndex = index;
      previous.disabled = index === 0;
      next.disabled = index === rows.length - 1;
    }
    function follow() {
      var index = rows.findIndex(function (row) { return "#" + row.id === location.hash; });
      if (index >= 0) { show(index); explorer.scrollIntoView(); }
    }
    // Find a row by its identifier.
    var search = make("input", { type: "search", id: "search-" + n, autocomplete: "off" });
    search.setAttribute("list", "identifiers-" + n);
    search.setAttribute("aria-describedby", "found-" + n);
    var searchLabel = make("label", { textContent: "Find", htmlFor: search.id });
    var known = make("datalist", { id: "identifiers-" + n });
    var status = make("span", { id: "found-" + n, className: "found" });
    status.setAttribute("role", "status");
    rows.forEach(function (row) {
      if (row.dataset.identifier) known.appendChild(new Option(row.dataset.identifier));
    });
    search.addEventListener("change", function () {
      var wanted = search.value.trim().toLowerCase();
      if (!wanted) { status.textContent = ""; return; }
      var index = rows.findIndex(function (row) { return row.dataset.identifier.toLowerCase() === wanted; });
      status.textContent = index < 0 ? "not among the " + rows.length + " rows of this page; gcig explain --id explains any row" : "";
      if (index >= 0) show(index);
    });
    select.addEventListener("change", function () { show(select.selectedIndex); });
    var picker = make("div", { className: "picker" });
    picker.append(label, select, previous, next);
    if (known.children.length) picker.append(searchLabel, search, known, status);
    explorer.prepend(picker);
    explorer.classList.add("active");
    show(0);
    follow();
    window.addEventListener("hashchange", follow);
    // Print all rows if there are few, otherwise only the one that is shown.
    window.addEventListener("beforeprint", function () {
      if (rows.length <= 10) rows.forEach(function (row) { row.hidden = false; });
    });
    window.addEventListener("afterprint", function () { show(select.selectedIndex); });
  });

  // Open all explanations before printing, and close them afterwards.
  var closed = [];
  window.addEventListener("beforeprint", function () {
    closed = Array.from(document.querySelectorAll("details:not([open])"));
    closed.forEach(function (part) { part.open = true; });
  });
  window.addEventListener("afterprint", function () {
    closed.forEach(function (part) { part.open = false; });
  });
})();
