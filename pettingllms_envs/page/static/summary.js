"use strict";
// The first thing to see: how often it succeeded, with intervals, and what it took. Drawn by Observable Plot.

function Figure({ title, draw }) {
  const box = useRef(null);
  useEffect(() => {
    const plot = draw();
    plot.querySelectorAll("g[aria-label]").forEach((g) => g.setAttribute("role", "group")); // else a label has no role
    box.current.replaceChildren(plot);
    return () => plot.remove();
  }, [draw]);
  return html`<figure><h2>${title}</h2><div ref=${box}></div></figure>`;
}

const INTERVAL = { stroke: "currentColor", strokeWidth: 1.5 };

/** Dots with their intervals, a row for each name. */
const intervals = (items, label, domain) => () => Plot.plot({
  width: 560, height: 60 + 26 * items.length, marginLeft: 170, x: { label, grid: true, domain, tickFormat: domain && "%" },
  y: { label: null, domain: items.map((item) => item.name) },
  marks: [
    Plot.ruleX([0]),
    Plot.ruleY(items.filter((item) => item.low !== null), { y: "name", x1: "low", x2: "high", ...INTERVAL }),
    Plot.dot(items, { y: "name", x: "value", fill: "var(--accent)", r: 4.5, tip: true,
      title: (item) => `${item.name}: ${short(item.value)}${item.low === null ? "" : ` [${short(item.low)}, ${short(item.high)}]`}, ${item.n} episodes` }),
  ],
});

const OUTCOMES = [["solved", "var(--good)"], ["not solved", "var(--soft)"], ["no verdict", "var(--line)"], ["error", "var(--bad)"]];

/** Of whole numbers: a bar for each where they are few. */
const histogram = (items, label) => () => {
  const [least, most] = d3.extent(items, (item) => item.value), few = most - least <= 40;
  const ticks = few ? d3.range(least, most + 1, Math.ceil((most - least + 1) / 12)) : undefined;
  const seen = OUTCOMES.filter(([name]) => items.some((item) => item.outcome === name));
  return Plot.plot({
    width: 560, height: 230, x: { label, ticks, tickFormat: few ? "d" : undefined }, y: { grid: true, label: "episodes", tickFormat: (n) => (Number.isInteger(n) ? n : "") },
    color: { domain: seen.map(([name]) => name), range: seen.map(([, color]) => color), legend: true },
    marks: [Plot.ruleY([0]), Plot.rectY(items, Plot.binX({ y: "count" },
      { x: "value", fill: "outcome", thresholds: few ? d3.range(least - 0.5, most + 1) : 30, tip: true }))],
  });
};

const lines = (items, label) => () => Plot.plot({
  width: 560, height: 240, x: { label: "training step →", tickFormat: "d", interval: 1 }, y: label.startsWith("Success") ? { grid: true, label: "success", domain: [0, 1], tickFormat: "%" } : { grid: true, label: label.split(",")[0].toLowerCase() }, color: { legend: true, scheme: "tableau10" },
  marks: [Plot.ruleY([0]), Plot.areaY(items, { x: "step", y1: "low", y2: "high", fill: "series", fillOpacity: 0.18 }),
    Plot.lineY(items, { x: "step", y: "value", stroke: "series" }), Plot.dot(items, { x: "step", y: "value", fill: "series", r: 2.5, tip: true })],
});

function Table({ heads, rows }) {
  return html`<div class="wide" tabindex="0"><table><thead><tr>${heads.map((head, k) => html`<th class=${k ? "number" : ""}>${head}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map((cell, k) => html`<td class=${k ? "number" : ""}>${cell}</td>`)}</tr>`)}</tbody></table></div>`;
}

/** What a run is known by. */
function About({ about }) {
  return html`<dl class="about">${about.map(([name, value]) => html`<div><dt>${name}</dt><dd class=${name === "command" ? "mono" : ""}>${value}</dd></div>`)}</dl>`;
}

/** Of a training: the team before and after, and what can be said of it. */
function Learned({ learned }) {
  return html`<section class="learned"><h2>What did the team learn?</h2><p>${learned.sentence}</p>
    <${Table} heads=${learned.heads} rows=${learned.rows} /><p class="soft">${learned.source}</p></section>`;
}

function Summary({ rows }) {
  const { about, learned, facts, cards, groups_table: groups, part_table: parts, curves } = data.run;
  const outcome = (row) => (row.error ? "error" : row.success === null ? "no verdict" : row.success ? "solved" : "not solved");
  const drawn = useMemo(() => ({
    groups: intervals(groups, "success →", [0, 1]),
    parts: intervals(parts, "mean over episodes →"),
    steps: histogram(rows.map((row) => ({ value: row.num_steps, outcome: outcome(row) })), "steps of an episode →"),
    tokens: histogram(rows.filter((row) => row.tokens !== null).map((row) => ({ value: row.tokens, outcome: outcome(row) })), "completion tokens of an episode →"),
    curves: Object.entries(curves).map(([label, items]) => [label, lines(items, label)]),
  }), [rows]);
  const range = (item) => (item.low === null ? "" : `[${short(item.low)}, ${short(item.high)}]`);
  return html`<${About} about=${about} />${learned && html`<${Learned} learned=${learned} />`}<div class="cards">${cards.map((card) => html`<div class="card"><div class="soft">${card.name}</div><div class="big">${card.value}</div><div class="soft">${card.note}</div></div>`)}</div>
    <div class="plots">
      ${drawn.curves.map(([label, draw]) => html`<${Figure} title=${label} draw=${draw} key=${label} />`)}
      ${groups.length > 0 && html`<${Figure} title="Success, with 95% intervals" draw=${drawn.groups} />`}
      ${parts.length > 0 && html`<${Figure} title="Reward parts, summed over an episode" draw=${drawn.parts} />`}
      ${new Set(rows.map((row) => row.num_steps)).size > 1 && html`<${Figure} title="Steps" draw=${drawn.steps} />`}
      ${rows.some((row) => row.tokens !== null) && html`<${Figure} title="Tokens" draw=${drawn.tokens} />`}
    </div>
    ${groups.length > 0 && html`<h2>Success</h2><${Table} heads=${["task", "episodes", "success", "95% interval"]}
      rows=${groups.map((item) => [item.name, item.n, percent(item.value), item.low === null ? "" : `[${percent(item.low)}, ${percent(item.high)}]`])} />`}
    ${parts.length > 0 && html`<h2>Reward parts</h2><${Table} heads=${["agent and part", "episodes", "mean", "95% interval"]}
      rows=${parts.map((item) => [item.name, item.n, short(item.value), range(item)])} />`}
    <h2>How it was run</h2>
    <table><tbody>${facts.map(([name, value]) => html`<tr><td class="soft">${name}</td><td class="mono">${value}</td></tr>`)}</tbody></table>`;
}
