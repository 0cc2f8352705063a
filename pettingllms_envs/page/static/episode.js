"use strict";
// One episode as a conversation: what each agent was shown, what it replied, what that was worth, and the board.

function Board({ board }) {
  if (typeof board === "string") return html`<pre class="sheet" tabindex="0">${board}</pre>`;
  const { palette } = data.run, side = 40, shapes = { disc: 0.36, ring: 0.32 };
  return html`<div class="board"><svg viewBox=${`0 0 ${side * board[0].length} ${side * board.length}`} role="img" aria-label="board">
    ${board.flatMap((line, r) => line.map((number, c) => {
      const tile = palette[number], x = c * side, y = r * side, middle = side / 2;
      return html`<g><rect x=${x} y=${y} width=${side} height=${side} fill=${tile.paper} stroke="#00000022" />
        ${tile.shape === "square" && html`<rect x=${x + 6} y=${y + 6} width=${side - 12} height=${side - 12} rx="4" fill=${tile.fill} />`}
        ${tile.shape in shapes && html`<circle cx=${x + middle} cy=${y + middle} r=${side * shapes[tile.shape]} fill=${tile.shape === "ring" ? "none" : tile.fill} stroke=${tile.fill} stroke-width=${tile.shape === "ring" ? 5 : 0} />`}
        ${tile.text && html`<text x=${x + middle} y=${y + middle + 7} text-anchor="middle" font-size="20" font-family="system-ui" fill=${tile.ink}>${tile.text}</text>`}</g>`;
    }))}
  </svg></div>`;
}

const LONGEST = 20_000; // characters; the rest is shown on request, since a reply may be a thousand screens

/** What somebody wrote, cut where it is very long. */
function Text({ text, kind = "" }) {
  const [whole, setWhole] = useState(false);
  if (whole || text.length <= LONGEST) return html`<pre class=${kind}>${text}</pre>`;
  return html`<pre class=${kind}>${text.slice(0, LONGEST / 2)}</pre><button onClick=${() => setWhole(true)}>… all ${text.length.toLocaleString("en")} characters</button>`;
}

/** An image that an agent was shown. */
function Picture({ image }) {
  return html`<figure class="shown"><img loading="lazy" src=${imageSource(image.digest)} alt=${image.alt} /><figcaption class="soft">${image.alt}</figcaption></figure>`;
}

/** A chat message: texts and images in order, and the tools that it calls. */
function Message({ message }) {
  const parts = typeof message.content === "string" ? [{ type: "text", text: message.content }] : message.content;
  const name = [message.role, message.name, message.tool_call_id].filter(Boolean).join(" ");
  return html`<div class="message"><b>${name}</b>
    ${parts.map((part) => part.type === "image" ? html`<${Picture} image=${part} />` : part.text && html`<${Text} kind="prompt" text=${part.text} />`)}
    ${(message.tool_calls ?? []).map((call) => html`<${ToolCall} call=${call} />`)}</div>`;
}

/** A call of a tool: arguments that are texts as they are, such as a program, others as JSON. */
function ToolCall({ call }) {
  const given = Object.entries(call.function.arguments).map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`);
  return html`<div class="soft">calls ${call.function.name} ${call.id}</div><${Text} kind="prompt" text=${given.join("\n")} />`;
}

function Parts({ parts }) {
  const shown = Object.entries(parts ?? {});
  return shown.length > 0 && html`<div class="parts">${shown.map(([name, value]) => html`<span class=${value < 0 ? "bad" : value > 0 ? "good" : "soft"}>${name} ${value > 0 ? "+" : ""}${short(value)}</span>`)}</div>`;
}

/** What changed from one text to the next, line by line (jsdiff). */
function Changes({ before, after }) {
  const parts = before.length + after.length <= 20 * LONGEST && Diff.diffLines(before, after, { maxEditLength: 2000 });
  if (!parts) return html`<div class="soft">(too long, or too different, to tell the changes)</div><${Text} text=${after} />`;
  return html`<pre>${parts.map((part) => html`<span class=${part.added ? "added" : part.removed ? "removed" : "same"}>${part.value.replace(/\n$/, "")}</span>`)}</pre>`;
}

function Step({ step, number, before, now, diff, tree, tools, steps, onPick }) {
  const box = useRef(null);
  useEffect(() => { if (now && number) box.current.scrollIntoView({ block: "nearest" }); }, [now]);
  const tokens = [step.prompt_tokens !== null && `${step.prompt_tokens} prompt`, step.completion_tokens !== null && `${step.completion_tokens} completion`].filter(Boolean);
  return html`<section class=${now ? "step now" : "step"} ref=${box} id=${`step-${number}`}>
    <header><span class="agent" style=${`--agent: ${agentColor(step.agent)}`}>${step.agent}</span><span class="soft">turn ${step.turn}, step ${number + 1}</span>
      <span>reward ${short(step.reward)}</span><span style="flex: 1"></span>${tokens.length > 0 && html`<span class="soft">${tokens.join(", ")} tokens</span>`}
      ${step.finish && step.finish !== "stop" && html`<span class="warn">ended by ${step.finish}</span>`}</header>
    <div class="body">
      ${step.board !== null && html`<${Board} board=${step.board} />`}
      <div class="texts">
        ${step.system !== null && html`<details><summary>system prompt</summary><${Text} kind="prompt" text=${data.run.systems[step.system]} /></details>`}
        ${step.messages && html`<details><summary>all ${step.messages.length} messages</summary>${step.messages.map((message) => html`<${Message} message=${message} />`)}</details>`}
        ${tools && html`<details><summary>${counted(tools.length, "tool")}</summary>${tools.map((tool) => html`<pre class="prompt">${JSON.stringify(tool.function, null, 2)}</pre>`)}</details>`}
        <${Text} kind="prompt" text=${step.prompt} />
        ${step.images.map((image) => html`<${Picture} image=${image} />`)}
        ${step.rounds.map((message) => html`<${Message} message=${message} />`)}
        ${step.reasoning && html`<details><summary>reasoning</summary><${Text} kind="prompt" text=${step.reasoning} /></details>`}
        <div class="said" style=${`--agent: ${agentColor(step.agent)}`}>
          ${diff && before ? html`<div class="soft">changes since this agent's last reply</div><${Changes} before=${before.reply} after=${step.reply} />` : step.reply ? html`<${Text} text=${step.reply} />` : html`<pre class="soft">(nothing)</pre>`}
        </div>
        <${Parts} parts=${step.parts} />
        ${step.design && html`<${Design} design=${step.design} steps=${steps} onPick=${onPick} />`}
        ${tree && step.candidates.length > 1 && html`<details open=${now}><summary>${step.candidates.length} candidates</summary><${Candidates} step=${step} /></details>`}
      </div>
    </div>
  </section>`;
}

function Episode({ row, now, setNow, diff, tree }) {
  const [episode, setEpisode] = useState(null);
  useEffect(() => {
    let wanted = true;
    setEpisode(null);
    data.episode(row.i).then((found) => wanted && setEpisode(found));
    return () => (wanted = false);
  }, [row.i]);
  if (!episode) return html`<p class="wait">Unpacking …</p>`;
  const last = {};
  const before = episode.steps.map((step) => { const found = last[step.agent]; last[step.agent] = step; return found; });
  const branches = episode.steps.some((step) => step.candidates.length > 1);
  return html`<div class="bar"><h1>${row.name}</h1><span class="soft">${row.group}</span>
      ${!row.error && row.success !== null && html`<b class=${row.success ? "good" : "bad"}>${row.success ? "solved" : "not solved"}</b>`}
      <span class="push"></span><span class="soft mono">${Object.entries(episode.outcome).map(([name, value]) => `${name} ${typeof value === "number" ? short(value) : value}`).join(", ")}</span></div>
    ${row.error && html`<div class="error"><b class="bad">Error, no verdict.</b> ${row.error}</div>`}
    ${tree && branches && html`<${Tree} steps=${episode.steps} now=${now} onPick=${setNow} />`}
    ${episode.steps.map((step, k) => html`<${Step} step=${step} number=${k} before=${before[k]} now=${k === now} diff=${diff} tree=${tree} tools=${step.tools === null ? null : episode.tools[step.tools]} steps=${episode.steps} onPick=${setNow} key=${k} />`)}
    ${episode.board !== null && html`<div class="step"><header><span class="soft">the end</span></header><div class="body"><${Board} board=${episode.board} /></div></div>`}
    <p class="soft mono">${episode.address}</p>`;
}
