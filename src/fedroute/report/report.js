(() => {
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    table.querySelectorAll("thead button").forEach((button) => {
      button.addEventListener("click", () => {
        const th = button.closest("th"), column = th.cellIndex;
        const up = th.getAttribute("aria-sort") === "descending";
        table.querySelectorAll("thead th").forEach((h) => h.removeAttribute("aria-sort"));
        th.setAttribute("aria-sort", up ? "ascending" : "descending");
        const numeric = th.classList.contains("n");
        const key = (row) => {
          const text = row.cells[column].textContent.trim();
          if (!numeric) return text;
          const number = parseFloat(text.replace("\u2212", "-"));
          return Number.isNaN(number) ? null : number;
        };
        [...body.rows]
          .map((row) => [key(row), row])
          .sort(([a], [b]) => {
            if (a === null || b === null) return (a === null) - (b === null);
            const order = typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true });
            return up ? order : -order;
          })
          .forEach(([, row]) => body.append(row));
      });
    });
  }
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => (d.open = true)));
})();
