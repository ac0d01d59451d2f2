// The curves of a report: one chart for each element of class "chart", from the JSON beside it.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const MARKS = {
    "o": "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0Z",
    "s": "M-3.2-3.2H3.2V3.2H-3.2Z",
    "^": "M0-4L4 3.2H-4Z",
    "v": "M0 4L4-3.2H-4Z",
    "D": "M0-4.4L4.4 0L0 4.4L-4.4 0Z",
    "*": "M0-5L1.2-1.6L4.8-1.5L1.9.6L2.9 4L0 2L-2.9 4L-1.9.6L-4.8-1.5L-1.2-1.6Z",
    "P": "M-1.5-4H1.5V-1.5H4V1.5H1.5V4H-1.5V1.5H-4V-1.5H-1.5Z",
  };

  function make(name, attributes = {}, words = null, space = null) {
    const element = space ? document.createElementNS(space, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (words !== null) element.textContent = words;
    return element;
  }
  const draw = (name, attributes, words = null) => make(name, attributes, words, SVG);
  const there = (x) => typeof x === "number";

  function said(x) {
    if (!there(x)) return "–";
    if (x !== 0 && (Math.abs(x) >= 1e5 || Math.abs(x) < 1e-3)) return x.toExponential(2);
    return String(Number(x.toPrecision(4)));
  }

  // Ticks that people read: 1, 2 or 5 times a power of ten; on a logarithmic axis, decades.
  function ticks(low, high, log, room) {
    const found = [];
    if (log) {
      const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
      const steps = last - first > 3 ? [1] : [1, 2, 5];
      const skip = Math.ceil((last - first) / room);
      for (let e = first; e <= last; e += skip) for (const m of steps) found.push(m * 10 ** e);
    } else {
      const rough = (high - low) / room || 1, power = 10 ** Math.floor(Math.log10(rough));
      const step = power * [1, 2, 5, 10].find((m) => m * power >= rough * 0.999);
      for (let n = Math.ceil(low / step - 1e-9); n * step <= high * (1 + 1e-9); n++) found.push(n * step);
    }
    return found.filter((x) => x >= low * (1 - Math.sign(low) * 1e-9) && x <= high * (1 + Math.sign(high) * 1e-9));
  }

  function mark(look, attributes) {
    return draw("path", { d: MARKS[look.marker], fill: look.colour, ...attributes });
  }

  function swatch(look) {
    const svg = draw("svg", { width: 34, height: 12, viewBox: "0 0 34 12", "aria-hidden": "true" });
    svg.append(draw("path", { d: "M1 6H33", stroke: look.colour, "stroke-width": 2, "stroke-dasharray": look.dash }));
    svg.append(mark(look, { transform: "translate(17 6)" }));
    return svg;
  }

  function chart(host) {
    const data = JSON.parse(document.getElementById(host.dataset.source).textContent);
    // The axes of all numbers, in their order; rounds are the last.
    const dims = [...data.dims, { name: "round", label: "communication round r", values: data.rounds, numeric: true }];
    const sizes = dims.map((dim) => dim.values.length);
    const strides = sizes.map((_, n) => sizes.slice(n + 1).reduce((a, b) => a * b, 1));
    const state = { metric: 0, x: data.against, by: 0, at: sizes.map((n, k) => (k === dims.length - 1 ? n - 1 : 0)), hidden: new Set(), log: null, spot: null };

    const controls = make("div", { class: "controls" });
    const legend = make("div", { class: "legend" });
    const stage = make("div", { class: "stage" });
    const tip = make("div", { class: "tip", hidden: "" });
    host.append(controls, stage, legend);

    function select(words, options, chosen, change) {
      const label = make("label", {}, words + " ");
      const box = make("select", { "aria-label": words });
      options.forEach(([value, text]) => {
        const option = make("option", { value }, text);
        option.selected = value === chosen;
        box.append(option);
      });
      box.addEventListener("change", () => { change(Number(box.value)); refresh(); });
      label.append(box);
      return label;
    }

    function control() {
      const named = dims.map((dim, n) => [n, dim.name]), long = named.filter(([n]) => sizes[n] > 1);
      controls.replaceChildren();
      if (data.metrics.length > 1)
        controls.append(select("show", data.metrics.map((m, n) => [n, m.name]), state.metric, (n) => { state.metric = n; state.log = null; }));
      if (dims.length > 2) {
        controls.append(select("against", long.filter(([n]) => n !== state.by), state.x, (n) => { state.x = n; }));
        controls.append(select("one curve for each", long.filter(([n]) => n !== state.x && n !== dims.length - 1), state.by, (n) => { state.by = n; state.hidden.clear(); }));
      }
      dims.forEach((dim, n) => {
        if (n === state.x || n === state.by || sizes[n] < 2) return;
        controls.append(select(dim.name, dim.values.map((v, k) => [k, String(v)]), state.at[n], (k) => { state.at[n] = k; }));
      });
      const box = make("input", { type: "checkbox" }), label = make("label");
      box.checked = logarithmic();
      box.addEventListener("change", () => { state.log = box.checked; refresh(); });
      label.append(box, " log scale");
      const save = make("button", { type: "button" }, "Download SVG");
      save.addEventListener("click", download);
      controls.append(label, save);
    }

    // The picture as a file of its own, with the looks that its classes have on this page.
    function download() {
      const svg = stage.querySelector("svg"), copy = svg.cloneNode(true), shown = svg.querySelectorAll("*");
      copy.querySelectorAll("*").forEach((element, n) => {
        const look = getComputedStyle(shown[n]);
        for (const name of ["fill", "fill-opacity", "stroke", "stroke-width", "font-size", "font-family"]) element.style.setProperty(name, look.getPropertyValue(name));
      });
      copy.setAttribute("xmlns", SVG);
      const address = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }));
      make("a", { href: address, download: "curves.svg" }).click();
      URL.revokeObjectURL(address);
    }

    const logarithmic = () => (state.log === null ? data.metrics[state.metric].log : state.log);

    function curves() {
      const kept = data.metrics[state.metric], known = state.by === 0 ? data.looks : data.palette;
      return dims[state.by].values.map((name, n) => {
        const points = dims[state.x].values.map((_, k) => {
          const place = sizes.reduce((sum, _, d) => sum + strides[d] * (d === state.x ? k : d === state.by ? n : state.at[d]), 0);
          return { mean: kept.mean[place], low: kept.low[place], high: kept.high[place] };
        });
        const words = state.by === 0 ? String(name) : `${dims[state.by].name} ${name}`;
        return { name: words, look: known[n % known.length], points, shown: !state.hidden.has(n), number: n };
      });
    }

    function entitle(all) {
      legend.replaceChildren(...all.map((curve) => {
        const button = make("button", { type: "button", "aria-pressed": String(curve.shown), title: "show or hide" });
        button.append(swatch(curve.look), make("span", {}, curve.name));
        button.addEventListener("click", () => {
          if (curve.shown) state.hidden.add(curve.number); else state.hidden.delete(curve.number);
          refresh();
          legend.children[curve.number].focus();
        });
        return button;
      }));
    }

    // Where the vertical axis begins and ends; a band that barely clears zero stretches no log axis.
    function range(shown, log) {
      const points = shown.flatMap((curve) => curve.points);
      const means = points.map((p) => p.mean).filter((v) => there(v) && (!log || v > 0));
      if (!means.length) return null;
      const highs = points.map((p) => p.high).filter(there), lows = points.map((p) => p.low).filter((v) => there(v) && (!log || v > 0));
      const top = Math.max(...means, ...highs), least = Math.min(...means), under = Math.min(least, ...lows);
      if (log) return [Math.min(least, Math.max(under, least / 10)) / 1.5, top * 1.2];
      const room = (top - under) * 0.05 || Math.abs(top) * 0.1 || 1;
      return [under - room, top + room];
    }

    function refresh() {
      control();
      const all = curves(), shown = all.filter((curve) => curve.shown);
      entitle(all);
      render(shown);
    }

    function render(shown) {
      const wide = Math.max(stage.clientWidth, 240), high = Math.round(Math.min(420, Math.max(260, wide * 0.55)));
      const left = 62, right = 12, top = 12, bottom = 46, metric = data.metrics[state.metric], axis = dims[state.x];
      const svg = draw("svg", { width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, role: "img", tabindex: 0, "aria-label": `${metric.label} against ${axis.label}` });
      stage.replaceChildren(svg, tip);
      tip.hidden = true;
      const log = logarithmic(), ends = range(shown, log);
      if (!ends) {
        svg.append(draw("text", { x: wide / 2, y: high / 2, "text-anchor": "middle", class: "axis" }, "nothing to draw"));
        return;
      }
      const xs = axis.numeric ? axis.values.map(Number) : axis.values.map((_, n) => n);
      const [x0, x1] = [Math.min(...xs), Math.max(...xs)], pad = axis.numeric ? 0.02 * (x1 - x0) || 1 : 0.3;
      const from = axis.name === "round" ? 0 : x0 - pad, to = x1 + pad;
      const px = (x) => left + ((x - from) / (to - from)) * (wide - left - right);
      const f = log ? Math.log10 : (v) => v, inner = high - top - bottom;
      const py = (v) => top + inner * (1 - (f(log ? Math.max(v, ends[0]) : v) - f(ends[0])) / (f(ends[1]) - f(ends[0])));
      frame(svg, { wide, high, left, right, top, bottom, log, ends, xs, from, to, px, py, axis, metric });
      const order = xs.map((_, n) => n).sort((a, b) => xs[a] - xs[b]);
      shown.forEach((curve) => trace(svg, curve, order, xs, px, py, log, ends, high - bottom));
      hover(svg, shown, xs, px, py, { wide, high, top, bottom, axis });
    }

    function frame(svg, b) {
      for (const v of ticks(b.ends[0], b.ends[1], b.log, 6)) {
        svg.append(draw("path", { d: `M${b.left} ${b.py(v)}H${b.wide - b.right}`, class: "grid" }));
        svg.append(draw("text", { x: b.left - 6, y: b.py(v) + 4, "text-anchor": "end", class: "axis" }, said(v)));
      }
      const room = Math.max(2, Math.floor((b.wide - b.left) / 70));
      const skip = Math.ceil(b.xs.length / room);
      const across = b.axis.numeric ? ticks(b.from, b.to, false, room).map((x) => [x, said(x)]) : b.xs.filter((x) => x % skip === 0).map((x) => [x, String(b.axis.values[x])]);
      for (const [x, words] of across) {
        svg.append(draw("path", { d: `M${b.px(x)} ${b.top}V${b.high - b.bottom}`, class: "grid" }));
        svg.append(draw("text", { x: b.px(x), y: b.high - b.bottom + 17, "text-anchor": "middle", class: "axis" }, words));
      }
      svg.append(draw("path", { d: `M${b.left} ${b.top}H${b.wide - b.right}V${b.high - b.bottom}H${b.left}Z`, class: "frame" }));
      svg.append(draw("text", { x: (b.left + b.wide - b.right) / 2, y: b.high - 8, "text-anchor": "middle", class: "axis" }, b.axis.label));
      const middle = (b.top + b.high - b.bottom) / 2, end = dims.length - 1;
      const last = state.x !== end && state.at[end] === sizes[end] - 1 ? "final " : "";
      svg.append(draw("text", { x: 14, y: middle, "text-anchor": "middle", class: "axis", transform: `rotate(-90 14 ${middle})` }, last + b.metric.label));
    }

    function trace(svg, curve, order, xs, px, py, log, ends, edge) {
      const drawn = order.filter((n) => there(curve.points[n].mean) && (!log || curve.points[n].mean > 0));
      const banded = drawn.filter((n) => there(curve.points[n].low) && there(curve.points[n].high));
      const way = (numbers, key) => numbers.map((n) => `${px(xs[n]).toFixed(1)} ${py(curve.points[n][key]).toFixed(1)}`).join("L");
      if (banded.length > 1) svg.append(draw("path", { d: `M${way(banded, "high")}L${way([...banded].reverse(), "low")}Z`, fill: curve.look.colour, class: "band" }));
      svg.append(draw("path", { d: `M${way(drawn, "mean")}`, stroke: curve.look.colour, "stroke-dasharray": curve.look.dash, class: "line" }));
      const every = state.x === dims.length - 1 ? Math.max(1, Math.floor(drawn.length / 8)) : 1;
      drawn.forEach((n, k) => {
        if (k % every === 0) svg.append(mark(curve.look, { transform: `translate(${px(xs[n])} ${py(curve.points[n].mean)})` }));
        // Where a band runs off the lower edge of a logarithmic axis, a small triangle says so.
        if (log && there(curve.points[n].low) && curve.points[n].low < ends[0]) svg.append(draw("path", { d: "M0 3L3-2H-3Z", fill: curve.look.colour, transform: `translate(${px(xs[n])} ${edge})` }));
      });
    }

    function hover(svg, shown, xs, px, py, box) {
      const line = draw("path", { class: "guide" }), dots = draw("g", {});
      svg.append(line, dots);
      const order = xs.map((_, n) => n).sort((a, b) => xs[a] - xs[b]);
      const leave = () => { tip.hidden = true; line.setAttribute("d", ""); dots.replaceChildren(); };
      function point(n) {
        state.spot = n;
        const x = px(xs[n]);
        line.setAttribute("d", `M${x} ${box.top}V${box.high - box.bottom}`);
        const here = shown.filter((curve) => there(curve.points[n].mean));
        dots.replaceChildren(...here.map((curve) => draw("circle", { cx: x, cy: py(curve.points[n].mean), r: 4, fill: curve.look.colour, class: "dot" })));
        tip.replaceChildren(make("b", {}, `${box.axis.name} ${box.axis.values[n]}`), ...here.map((curve) => {
          const row = make("div"), p = curve.points[n];
          const band = there(p.low) && there(p.high) ? ` [${said(p.low)}, ${said(p.high)}]` : "";
          row.append(swatch(curve.look), make("span", {}, `${curve.name}: ${said(p.mean)}${band}`));
          return row;
        }));
        tip.hidden = false;
        tip.style.left = `${Math.max(0, Math.min(box.wide - tip.offsetWidth, x < box.wide / 2 ? x + 12 : x - tip.offsetWidth - 12))}px`;
        tip.style.top = `${box.top + 6}px`;
      }
      function near(event) {
        const x = event.clientX - svg.getBoundingClientRect().left;
        point(order.reduce((best, n) => (Math.abs(px(xs[n]) - x) < Math.abs(px(xs[best]) - x) ? n : best), order[0]));
      }
      svg.addEventListener("pointermove", near);
      svg.addEventListener("pointerdown", near);
      svg.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") leave(); });
      svg.addEventListener("blur", leave);
      svg.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (!step) return;
        event.preventDefault();
        const at = order.indexOf(state.spot);
        point(order[at < 0 ? 0 : Math.min(order.length - 1, Math.max(0, at + step))]);
      });
    }

    refresh();
    let before = stage.clientWidth;
    new ResizeObserver(() => {
      if (stage.clientWidth === before) return;
      before = stage.clientWidth;
      render(curves().filter((curve) => curve.shown));
    }).observe(stage);
  }

  document.querySelectorAll(".chart").forEach(chart);
})();
