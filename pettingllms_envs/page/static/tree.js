"use strict";
// A training rollout: at each decision K candidates from one state, the best goes on. A column is a decision.

const COLUMN = 118, LINE = 26, RADIUS = 7;

function Tree({ steps, now, onPick }) {
  const most = Math.max(...steps.map((step) => step.candidates.length));
  const weights = steps.flatMap((step) => step.candidates.map((candidate) => Math.abs(candidate.advantage ?? candidate.reward ?? 0)));
  const color = d3.scaleDiverging([-Math.max(1e-9, ...weights), 0, Math.max(1e-9, ...weights)], d3.interpolateRdYlGn);
  const x = (k) => 60 + k * COLUMN, y = (c, n) => 34 + ((most - n) * LINE) / 2 + c * LINE;
  const from = (k) => (k ? [x(k - 1) + RADIUS, y(steps[k - 1].chosen, steps[k - 1].candidates.length)] : [10, y(0, 1)]);
  return html`<div class="tree"><svg width=${x(steps.length)} height=${LINE * most + 46} role="group" aria-label="Candidates of each decision">
    ${steps.flatMap((step, k) => step.candidates.map((_, c) => {
      const [x0, y0] = from(k), x1 = x(k) - RADIUS, y1 = y(c, step.candidates.length), middle = (x0 + x1) / 2;
      return html`<path class=${c === step.chosen ? "edge played" : "edge"} d=${`M${x0},${y0}C${middle},${y0} ${middle},${y1} ${x1},${y1}`} />`;
    }))}
    ${steps.map((step, k) => html`<g key=${k}>
      <text x=${x(k)} y="14" text-anchor="middle" class="agent" style=${`--agent: ${agentColor(step.agent)}`}>${step.agent}</text>
      ${step.candidates.map((candidate, c) => {
        const y1 = y(c, step.candidates.length), played = c === step.chosen, value = candidate.advantage ?? candidate.reward ?? 0;
        return html`<g class="node" tabindex="0" role="button" aria-label=${`candidate ${c + 1} of ${step.agent}, reward ${short(candidate.reward)}`}
          onClick=${() => onPick(k)} onKeyDown=${(e) => e.key === "Enter" && onPick(k)}>
          <circle cx=${x(k)} cy=${y1} r=${RADIUS} fill=${color(value)} stroke=${k === now || played ? "var(--accent)" : "var(--line)"} stroke-width=${played ? 2.5 : 1} />
          <text x=${x(k) + RADIUS + 4} y=${y1 + 4}>${short(candidate.reward)}</text>
          <title>${`candidate ${c + 1}${played ? ", played on" : ""}\nreward ${short(candidate.reward)}\nadvantage ${short(candidate.advantage)}\n\n${candidate.reply.slice(0, 300)}`}</title>
        </g>`;
      })}
    </g>`)}
  </svg></div>`;
}

/** The reward and the advantage of a candidate. */
function Worth({ of }) {
  return html`<span>reward ${short(of.reward)}</span>${(of.advantage ?? null) !== null && html`<span class=${of.advantage < 0 ? "bad" : "good"}>advantage ${short(of.advantage)}</span>`}`;
}

function Candidates({ step }) {
  return html`<div class="candidates">${step.candidates.map((candidate, c) => html`<div class=${c === step.chosen ? "candidate chosen" : "candidate"}>
    <div class="bar"><b>candidate ${c + 1}</b>${c === step.chosen && html`<span class="good">played on</span>`}
      <${Worth} of=${candidate} /></div>
    <${Parts} parts=${candidate.parts} />${candidate.reply ? html`<${Text} text=${candidate.reply} />` : html`<pre class="soft">(nothing)</pre>`}
    ${candidate.design && html`<${Design} design=${candidate.design} />`}
    ${candidate.continuations.length > 0 && html`<${Continuations} of=${candidate.continuations} />`}</div>`)}</div>`;
}
