// What a page does beyond showing: colours, sorting and filtering of tables, zoom of pictures. The page is
// complete without it.
"use strict";
(() => {
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];

  // Colours. What a reader chose is kept where the browser lets a file keep it.
  const keep = { get() { try { return localStorage.getItem("irqlab-theme"); } catch { return null; } },
                 set(theme) { try { localStorage.setItem("irqlab-theme", theme); } catch { /* not kept */ } } };
  const theme = document.getElementById("theme");
  const dress = (name) => {
    if (name === "light" || name === "dark") document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
  };
  theme.value = ["light", "dark"].includes(keep.get()) ? keep.get() : "auto";
  dress(theme.value);
  theme.closest("label").hidden = false;
  theme.addEventListener("change", () => { dress(theme.value); keep.set(theme.value); });

  // Tables: a heading is a button that sorts the rows of each group. Absent values stay last.
  const number = (text) => {
    const found = text.replace(/,/g, "").match(/-?\d+(\.\d+)?(e-?\d+)?/);
    return found ? parseFloat(found[0]) : NaN;
  };
  const sort = (table, column, isNumber, sign) => {
    for (const body of all("tbody", table)) {
      const rows = all("tr:not(.group)", body);
      const key = (row) => row.cells[column].textContent;
      rows.sort((a, b) => {
        if (!isNumber) return sign * key(a).localeCompare(key(b), "en", { numeric: true });
        const [x, y] = [number(key(a)), number(key(b))];
        if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y);
        return sign * (x - y);
      });
      body.append(...rows);
    }
  };
  for (const table of all("table[data-sortable]")) {
    const heads = all("thead th", table);
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const isNumber = head.classList.contains("number");
        const before = head.getAttribute("aria-sort");
        const down = before ? before === "ascending" : isNumber;
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        sort(table, column, isNumber, down ? -1 : 1);
      });
    });
    // The meaning of a cell is that of its column.
    table.addEventListener("mouseover", (event) => {
      const cell = event.target.closest("td");
      if (cell && !cell.title) cell.title = heads[cell.cellIndex].title;
    });
  }
  // A table that is wider than its place says so: some browsers hide the bar to scroll with.
  const hints = new Map();
  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) hints.get(target).hidden = target.scrollWidth <= target.clientWidth + 1;
  });
  for (const place of all(".scroll")) {
    const hint = document.createElement("p");
    hint.className = "hint";
    hint.textContent = "Further columns: scroll the table sideways.";
    hint.hidden = true;
    place.after(hint);
    hints.set(place, hint);
    sizes.observe(place);
  }
  for (const input of all("input[data-filter]")) {
    const place = document.getElementById(input.dataset.filter);
    const rows = all("tbody tr:not(.group)", place);
    const output = input.closest(".filter").querySelector("output");
    input.closest(".filter").hidden = false;
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += !row.hidden;
      }
      for (const body of all("tbody", place)) {
        const group = body.querySelector(".group");
        if (group) group.hidden = all("tr:not(.group)", body).every((row) => row.hidden);
      }
      output.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
    });
  }

  // All that is folded is on paper.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = all("details:not([open])");
    folded.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => folded.forEach((one) => { one.open = false; }));

  // Pictures. The horizontal axis of each plot can be narrowed: what is drawn in the plot moves, its numbers
  // are made again.
  const NS = "http://www.w3.org/2000/svg";
  const make = (name, attributes) => {
    const element = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  const steps = [1, 2, 5, 10];
  // Round numbers between two, about six; of a logarithmic axis, powers of ten while there are enough of them.
  const ticks = (low, high, isLog) => {
    if (isLog && high / low > 20) {
      const found = [];
      const few = Math.log10(high / low) < 3;
      for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1)
        for (const step of few ? [1, 2, 5] : [1]) found.push(step * 10 ** power);
      return found.filter((one) => one >= low * (1 - 1e-9) && one <= high * (1 + 1e-9));
    }
    const rough = (high - low) / 6, ten = 10 ** Math.floor(Math.log10(rough));
    const step = ten * steps.find((one) => one * ten >= rough * (1 - 1e-9));
    const found = [];
    for (let at = Math.ceil(low / step - 1e-9); at * step <= high * (1 + 1e-9) && found.length < 20; at += 1)
      found.push(at * step);
    return found;
  };
  const written = (value, units, digits = 6) => {
    let unit = units[0];
    for (const one of units) if (Math.abs(value) >= one[1] * (1 - 1e-9)) unit = one;
    if (value === 0) unit = units[0];
    const text = (Number((value / unit[1]).toPrecision(digits))).toLocaleString("en", { maximumFractionDigits: 6 });
    return unit[0] ? `${text} ${unit[0]}` : text;
  };

  let serial = 0;
  for (const svg of all("svg[data-plots]")) {
    const plots = JSON.parse(svg.dataset.plots);
    // Of bars, all is to be seen.
    if (plots.every((plot) => plot.names)) continue;
    const elements = [...svg.children];
    const numbers = (element, names) => names.map((name) => parseFloat(element.getAttribute(name)));
    const points = (element) => element.getAttribute("points").trim().split(/\s+/)
      .map((pair) => pair.split(",").map(Number));
    // Where an element is: its horizontal and vertical ends.
    const box = (element) => {
      switch (element.tagName) {
        case "rect": { const [x, y, w, h] = numbers(element, ["x", "y", "width", "height"]); return [x, x + w, y, y + h]; }
        case "circle": { const [x, y] = numbers(element, ["cx", "cy"]); return [x, x, y, y]; }
        case "line": { const [a, c, b, d] = numbers(element, ["x1", "y1", "x2", "y2"]); return [Math.min(a, b), Math.max(a, b), Math.min(c, d), Math.max(c, d)]; }
        case "polyline": case "polygon": {
          const all = points(element), xs = all.map((one) => one[0]), ys = all.map((one) => one[1]);
          return [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
        }
        case "text": { const [x, y] = numbers(element, ["x", "y"]); return [x, x, y, y]; }
        default: return null;
      }
    };
    const boxes = elements.map(box);
    for (const plot of plots) {
      const [left, right] = plot.x, [top, bottom] = plot.y, [low, high] = plot.ends;
      const id = `zoom-${serial += 1}`;
      const clip = make("clipPath", { id });
      clip.append(make("rect", { x: left, y: top - 20, width: right - left, height: bottom - top + 40 }));
      svg.prepend(clip);
      // What is drawn by value; the axes' own lines stay.
      plot.marks = elements.filter((element, at) => boxes[at] && boxes[at][0] >= left - 1 && boxes[at][1] <= right + 1
        && boxes[at][2] >= top - 20 && boxes[at][3] <= bottom + 2 && !(boxes[at][1] - boxes[at][0] < 1 && boxes[at][0] <= left + 1));
      // Numbers at the axis and their short lines.
      plot.labels = elements.filter((element, at) => boxes[at] && boxes[at][2] > bottom - 1 && boxes[at][3] < bottom + 110
        && boxes[at][0] >= left - 200 && boxes[at][1] <= right + 200 && !plot.marks.includes(element)
        && boxes[at][1] - boxes[at][0] < 40 && (element.tagName !== "text" || boxes[at][2] < bottom + 90));
      plot.first = new Map(plot.marks.map((element) => [element, element.cloneNode(true)]));
      plot.marks.forEach((element) => element.setAttribute("clip-path", `url(#${id})`));
      const scale = (value) => plot.log ? Math.log(Math.max(value, low * 1e-3)) : value;
      plot.share = (value) => (scale(value) - scale(low)) / (scale(high) - scale(low));
      plot.value = (share) => plot.log ? low * (high / low) ** share : low + (high - low) * share;
      plot.added = [];
    }
    // Plots with the same axis are zoomed together; buttons and keys are for those that were dragged last.
    for (const plot of plots) plot.range = [0, 1];
    let current = plots[0];
    const together = () => plots.filter((plot) => plot.log === current.log && `${plot.ends}` === `${current.ends}`);
    // Shows the part of the axis between two shares of it.
    const show = (from, to) => {
      for (const plot of together()) {
        plot.range = [from, to];
        const [left, right] = plot.x, [, bottom] = plot.y, width = right - left;
        const move = (x) => left + ((x - left) / width - from) / (to - from) * width;
        for (const [element, first] of plot.first) {
          const set = (name, x) => element.setAttribute(name, x.toFixed(1));
          const get = (name) => parseFloat(first.getAttribute(name));
          switch (element.tagName) {
            case "rect": set("x", move(get("x"))); set("width", get("width") / (to - from)); break;
            case "circle": set("cx", move(get("cx"))); break;
            case "line": set("x1", move(get("x1"))); set("x2", move(get("x2"))); break;
            case "text": set("x", move(get("x"))); break;
            default: element.setAttribute("points", points(first).map(([x, y]) => `${move(x).toFixed(1)},${y}`).join(" "));
          }
        }
        const whole = from === 0 && to === 1;
        plot.labels.forEach((element) => { element.style.display = whole ? "" : "none"; });
        plot.added.forEach((element) => element.remove());
        plot.added = [];
        if (whole) continue;
        const example = plot.labels.find((element) => element.tagName === "text");
        for (const value of ticks(plot.value(from), plot.value(to), plot.log)) {
          const x = left + (plot.share(value) - from) / (to - from) * width;
          const line = make("line", { x1: x, x2: x, y1: plot.y[0], y2: bottom + 16, stroke: "#D9D9D9", "stroke-width": 4, "stroke-dasharray": "4 12" });
          const text = make("text", { x, y: example ? example.getAttribute("y") : bottom + 40, dy: example ? example.getAttribute("dy") || "" : "0.76em",
            "text-anchor": "middle", "font-family": "sans-serif", "font-size": example ? example.getAttribute("font-size") : 48, fill: "#4D4D4D" });
          text.textContent = written(value, plot.units);
          svg.append(line, text);
          plot.added.push(line, text);
        }
      }
      reset.disabled = plots.every((plot) => plot.range[0] === 0 && plot.range[1] === 1);
      const whole = from === 0 && to === 1;
      output.textContent = whole ? "" : `${written(current.value(from), current.units)} to ${written(current.value(to), current.units)}`;
    };
    const zoom = (factor, at = 0.5) => {
      const [from, to] = current.range, width = Math.min(1, (to - from) * factor);
      if (width < 1e-4) return;
      const start = Math.min(Math.max(from + (to - from) * at - width * at, 0), 1 - width);
      show(start, width === 1 ? 1 : start + width);
    };
    const shift = (by) => {
      const width = current.range[1] - current.range[0];
      const start = Math.min(Math.max(current.range[0] + by * width, 0), 1 - width);
      show(start, start + width);
    };
    // Buttons, keys, and a drag from one end of what is wanted to the other.
    const tools = document.createElement("div");
    tools.className = "tools";
    const add = (text, action) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.addEventListener("click", action);
      tools.append(button);
      return button;
    };
    add("Zoom in", () => zoom(0.5));
    add("Zoom out", () => zoom(2));
    add("◂ Left", () => shift(-0.5));
    add("Right ▸", () => shift(0.5));
    const whole = () => { for (current of plots) show(0, 1); [current] = plots; };
    const reset = add("Whole axis", whole);
    reset.disabled = true;
    const output = document.createElement("output");
    output.className = "range";
    output.setAttribute("aria-live", "polite");
    tools.append(output);
    const holder = svg.closest(".picture");
    const title = svg.closest("figure").querySelector("h3").textContent;
    all("button", tools).forEach((button) => button.setAttribute("aria-label", `${button.textContent}: ${title}`));
    holder.before(tools);
    holder.addEventListener("keydown", (event) => {
      const action = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": whole }[event.key];
      if (action && !event.ctrlKey && !event.metaKey) { action(); event.preventDefault(); }
    });
    const place = (event) => {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      const plot = plots.find((one) => point.x >= one.x[0] && point.x <= one.x[1] && point.y >= one.y[0] && point.y <= one.y[1]);
      return plot && { plot, x: point.x };
    };
    let drag = null;
    svg.addEventListener("pointerdown", (event) => {
      // A finger scrolls.
      const start = event.pointerType === "mouse" && event.button === 0 && place(event);
      if (!start) return;
      drag = { ...start, rect: make("rect", { class: "brush", x: start.x, width: 0, y: start.plot.y[0], height: start.plot.y[1] - start.plot.y[0] }) };
      svg.append(drag.rect);
      svg.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    // The axis at the pointer, next to the buttons, until the pointer leaves.
    const readout = document.createElement("output");
    readout.className = "readout";
    tools.append(readout);
    svg.addEventListener("pointerleave", () => { readout.textContent = ""; });
    svg.addEventListener("pointermove", (event) => {
      const at = place(event);
      const [from, to] = at ? at.plot.range : [0, 1];
      readout.textContent = at ? `at the pointer: ${written(at.plot.value(from + (at.x - at.plot.x[0])
        / (at.plot.x[1] - at.plot.x[0]) * (to - from)), at.plot.units, 3)}` : "";
      if (!drag) return;
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      drag.to = Math.min(Math.max(point.x, drag.plot.x[0]), drag.plot.x[1]);
      drag.rect.setAttribute("x", Math.min(drag.x, drag.to));
      drag.rect.setAttribute("width", Math.abs(drag.to - drag.x));
    });
    svg.addEventListener("pointerup", () => {
      if (!drag) return;
      const { plot, x, to, rect } = drag;
      drag = null;
      rect.remove();
      if (to === undefined || Math.abs(to - x) < 20) return;
      current = plot;
      const [low, high] = plot.range;
      const share = (one) => low + (one - plot.x[0]) / (plot.x[1] - plot.x[0]) * (high - low);
      show(share(Math.min(x, to)), share(Math.max(x, to)));
    });
  }
})();
