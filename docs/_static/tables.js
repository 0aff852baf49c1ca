/* Marks tables of words, and gives each cell the head of its column: gpureduce.css shows the rows
   of such a table as blocks of lines on a phone. */
document.addEventListener("DOMContentLoaded", () => {
    for (const table of document.querySelectorAll("article table.docutils")) {
        const heads = [...(table.tHead?.rows[0]?.cells ?? [])].map((cell) => cell.innerText);
        if (table.querySelector("td.text-right")) continue;
        table.classList.add("words");
        for (const row of table.tBodies[0].rows)
            [...row.cells].forEach((cell, i) => (cell.dataset.head = heads[i] ?? ""));
    }
});
