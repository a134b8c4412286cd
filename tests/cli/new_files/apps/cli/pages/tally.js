const list = document.getElementById("letters");
for (const [letter, count] of Object.entries(counts)) {
  list.append(Object.assign(document.createElement("dt"), { textContent: letter }));
  list.append(Object.assign(document.createElement("dd"), { textContent: count }));
}
