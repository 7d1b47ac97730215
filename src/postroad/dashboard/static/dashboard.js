"use strict";
(function () {
  const root = document.documentElement;
  const base = document.querySelector('meta[name="postroad-base"]').content;

  // The theme: the system's, until somebody chooses.
  const stored = () => { try { return localStorage.getItem("postroad-theme"); } catch { return null; } };
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  if (stored()) root.dataset.theme = stored();
  function toggleTheme() {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("postroad-theme", root.dataset.theme); } catch { /* private window */ }
    draw();
  }

  // Charts: fetched as data, drawn again with every sample.
  const CHARTS = {
    waiting: { color: "--blue", of: (s) => s.waiting + s.backlog, tell: (v) => v.toLocaleString("en") },
    rate: { color: "--green", of: (s) => s.sent_per_second, tell: (v) => (v ? v.toFixed(1) : "0") + " /s" },
    failing: { color: "--red", of: (s) => s.failing, tell: (v) => v.toLocaleString("en") },
    oldest: { color: "--amber", of: (s) => s.oldest_age, tell: (v) => (v < 1 ? "0 s" : v < 120 ? v.toFixed(0) + " s" : (v / 60).toFixed(0) + " min") },
  };
  let samples = [];
  const plots = new Map();
  function draw() {
    for (const place of document.querySelectorAll("[data-chart]")) {
      const chart = CHARTS[place.dataset.chart];
      const data = [samples.map((s) => s.at), samples.map(chart.of)];
      const told = document.getElementById("now-" + place.dataset.chart);
      if (told && samples.length) told.textContent = chart.tell(data[1][data[1].length - 1]);
      const old = plots.get(place);
      const key = dark() + ":" + place.clientWidth;
      if (old && old.key === key) { old.plot.setData(data); continue; }
      if (old) old.plot.destroy();
      const css = getComputedStyle(root), ink = css.getPropertyValue("--faint").trim(), line = css.getPropertyValue("--line").trim(), color = css.getPropertyValue(chart.color).trim();
      const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
      plots.set(place, { key, plot: new uPlot({
        width: place.clientWidth, height: 150, legend: { show: false }, cursor: { y: false, points: { size: 6 } },
        scales: { y: { range: (u, low, high) => [0, Math.max(1, high * 1.15)] } },
        axes: [{ ...axis, grid: { show: false }, size: 26, space: 90, values: (u, times) => times.map((t) => new Date(t * 1000).toISOString().slice(11, 19)) }, { ...axis, size: 44 }],
        series: [{}, { stroke: color, width: 2, fill: color + "22", points: { show: false } }],
      }, data, place) });
    }
  }
  async function sample() {
    try {
      const answer = await fetch(base + "/api/samples", { headers: { accept: "application/json" } });
      if (answer.ok) { samples = await answer.json(); draw(); }
    } catch { /* the next one will tell */ }
  }
  if (document.querySelector("[data-chart]")) {
    sample();
    setInterval(() => { if (!document.hidden) sample(); }, Number(document.querySelector("[data-every]").dataset.every));
    addEventListener("resize", draw);
  }

  // Many at once.
  function counted(form) {
    const boxes = [...form.querySelectorAll('input[name="ids"]')], chosen = boxes.filter((box) => box.checked).length;
    for (const button of form.querySelectorAll("[data-needs-choice]")) button.disabled = !chosen;
    for (const told of form.querySelectorAll("[data-chosen]")) told.textContent = chosen ? chosen + " chosen" : "";
    const all = form.querySelector("[data-all]");
    if (all) { all.checked = chosen > 0 && chosen === boxes.length; all.indeterminate = chosen > 0 && chosen < boxes.length; }
  }
  document.addEventListener("change", (event) => {
    const form = event.target.closest("form");
    if (!form) return;
    if (event.target.matches("[data-all]")) for (const box of form.querySelectorAll('input[name="ids"]')) box.checked = event.target.checked;
    if (event.target.matches('[data-all], input[name="ids"]')) counted(form);
  });
  document.querySelectorAll("form").forEach(counted);

  // By keyboard alone.
  const rows = () => [...document.querySelectorAll("tbody tr[data-href]")];
  function move(step) {
    const all = rows();
    if (!all.length) return;
    const at = all.findIndex((row) => row.classList.contains("at"));
    const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + step))];
    all.forEach((row) => row.classList.remove("at"));
    next.classList.add("at");
    next.scrollIntoView({ block: "nearest" });
  }
  const help = document.getElementById("keys");
  let going = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input:not([type=checkbox]), textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const row = document.querySelector("tr.at");
    if (going) {
      going = false;
      const link = document.querySelector('.menu a[data-key="' + CSS.escape(event.key) + '"]');
      if (link) { event.preventDefault(); link.click(); }
    } else if (event.key === "g") going = true;
    else if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "Enter" && row && document.activeElement === document.body) location.assign(row.dataset.href);
    else if (event.key === "x" && row) { const box = row.querySelector('input[name="ids"]'); if (box) box.click(); }
    else if (event.key === "n" || event.key === "p") { const link = document.querySelector("a[rel=" + (event.key === "n" ? "next" : "prev") + "]"); if (link) link.click(); }
    else if (event.key === "/") { const field = document.querySelector("[data-search]"); if (field) { event.preventDefault(); field.focus(); } else location.assign(base + "/outbox#search"); }
    else if (event.key === "t") toggleTheme();
    else if (event.key === "?" && help) help.showModal();
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-theme-toggle]")) toggleTheme();
    if (event.target.closest("[data-burger]")) {
      const side = document.querySelector(".side"), open = side.classList.toggle("open");
      event.target.closest("[data-burger]").setAttribute("aria-expanded", String(open));
    }
    if (event.target.closest("[data-keys]") && help) help.showModal();
  });
  if (location.hash === "#search") { const field = document.querySelector("[data-search]"); if (field) field.focus(); }
})();
