"use strict";
// A team that a designer wrote: who reads whom, and of each member its job, its tools, and what its replies were worth.

const PLACE = 84, CIRCLE = 15;

const memberName = (number) => `member_${number}`;

/** Whom a member reads, and its tools, in words. */
const factsOfMember = ({ reads, tools }) => [reads.length ? `reads ${reads.map(memberName).join(", ")}` : "reads nobody", tools.length && `tools: ${tools.join(", ")}`].filter(Boolean).join("; ");

/** Members from left to right, in the order in which they act; an arc leads from a member to one that reads it. */
function Graph({ members }) {
  const x = (k) => 42 + k * PLACE, top = 12 + 13 * Math.max(0, ...members.flatMap(({ reads }, k) => reads.map((from) => k - from))), y = top + CIRCLE;
  const words = members.map((member, k) => `${memberName(k)} ${factsOfMember(member)}`).join(". ");
  return html`<div class="wide" tabindex="0"><svg class="graph" width=${x(members.length - 1) + 42} height=${y + CIRCLE + 22} role="img" aria-label=${words}>
    ${members.flatMap(({ reads }, k) => reads.map((from) => {
      const end = x(k) - 5, high = y - CIRCLE - 26 * (k - from) + 8;
      return html`<path class="edge" d=${`M${x(from) + 5},${y - CIRCLE}Q${(x(from) + end) / 2},${high} ${end},${y - CIRCLE - 2}`} /><path class="head" d=${`M${end},${y - CIRCLE}l-6,-5l7,-2z`} />`;
    }))}
    ${members.map(({ tools }, k) => html`<g><circle cx=${x(k)} cy=${y} r=${CIRCLE} style=${`--agent: ${agentColor(memberName(k))}`} />
      <text x=${x(k)} y=${y + 4} text-anchor="middle">${k}</text><text x=${x(k)} y=${y + CIRCLE + 16} text-anchor="middle">${tools.length > 1 ? counted(tools.length, "tool") : tools[0]}</text></g>`)}
  </svg></div>`;
}

/** A design; with the episode's steps also what each member's replies were worth, and the way to them. */
function Design({ design, steps = [], onPick }) {
  if (design.unreadable) return html`<p class="warn">No design: ${design.unreadable}.</p>`;
  const { members, rounds } = design;
  return html`<div class="design"><${Graph} members=${members} />
    ${rounds > 1 && html`<p class="soft">${counted(rounds, "round")}: then all of them act again, and also read what ${memberName(members.length - 1)} wrote.</p>`}
    <ol start="0">${members.map((member, k) => {
      const own = steps.filter((step) => step.agent === memberName(k));
      return html`<li key=${k}><div class="bar">${own.length > 0 ? html`<button onClick=${() => onPick(steps.indexOf(own[0]))}>${memberName(k)}</button>` : html`<b>${memberName(k)}</b>`}
          <span class="soft">${factsOfMember(member)}</span>${own.length > 0 && html`<span>${own.length === 1 ? "1 reply" : `${own.length} replies`}, reward ${short(d3.sum(own, (step) => step.reward))}</span>`}
          ${steps.length > 0 && !own.length && html`<span class="warn">was not asked</span>`}</div>
        <${Text} text=${member.job} /></li>`;
    })}</ol></div>`;
}

/** How it went on from a candidate, each time to the end: what that was worth, and whose replies are trained on. */
function Continuations({ of }) {
  return html`<details><summary>played to the end ${of.length === 1 ? "once" : `${of.length} times`}, returns ${of.map((each) => short(each.return)).join(", ")}</summary>
    ${of.map((each, n) => html`<div class="candidate" key=${n}><b>continuation ${n + 1}, return ${short(each.return)}</b>
      ${each.steps.map((step) => html`<div class="said" style=${`--agent: ${agentColor(step.agent)}`}>
        <div class="bar"><b>${step.agent}</b><${Worth} of=${step.candidates[step.chosen] ?? step} /></div>
        <details><summary>prompt</summary>${step.system !== null && html`<${Text} kind="prompt" text=${data.run.systems[step.system]} />`}<${Text} kind="prompt" text=${step.prompt} /></details>
        ${step.reply ? html`<${Text} text=${step.reply} />` : html`<pre class="soft">(nothing)</pre>`}</div>`)}</div>`)}</details>`;
}
