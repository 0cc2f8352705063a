"use strict";
// What the page knows: the run, one short row for each episode, and the episodes themselves, unpacked when looked at.

const { html, render, useEffect, useMemo, useRef, useState } = htmPreact;

/** A model may write half of a surrogate pair, which is no character: shown as the sign for that. */
const wellFormed = (_, value) => (typeof value === "string" ? value.toWellFormed?.() ?? value : value);

/** The value in a script element: JSON, gzipped, in base64. */
async function unpacked(id) {
  const packed = atob(document.getElementById(id).textContent.trim());
  const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text(), wellFormed);
}

const data = {
  run: null,
  rows: [],
  pieces: new Map(),

  async open() {
    data.run = await unpacked("run");
    const { names, columns } = await unpacked("index");
    const number = columns[0]?.length ?? 0;
    data.rows = Array.from({ length: number }, (_, i) => {
      const row = { i };
      names.forEach((name, column) => (row[name] = columns[column][i]));
      return row;
    });
  },

  /** The episode of a row; the piece of the file that it is in is unpacked once, and a few are kept. */
  async episode(i) {
    const piece = Math.floor(i / data.run.piece_size);
    if (!data.pieces.has(piece)) {
      data.pieces.set(piece, unpacked(`piece-${piece}`));
      if (data.pieces.size > 8) data.pieces.delete(data.pieces.keys().next().value);
    }
    return (await data.pieces.get(piece))[i % data.run.piece_size];
  },
};

/** An image of a prompt as the source of an `img`. */
const imageSource = (digest) => `data:image/png;base64,${document.getElementById(`image-${digest}`).textContent}`;

/** Wilson's interval for k successes of n, 95%. */
function wilson(k, n) {
  if (!n) return [0, 1];
  const z = 1.959964, p = k / n, d = 1 + (z * z) / n;
  const middle = (p + (z * z) / (2 * n)) / d, half = (z / d) * Math.sqrt((p * (1 - p)) / n + (z * z) / (4 * n * n));
  return [Math.max(0, middle - half), Math.min(1, middle + half)];
}

const percent = (x) => `${(100 * x).toFixed(1)}%`;
const short = (x) => (x === null || x === undefined ? "" : Number.isInteger(x) ? String(x) : x.toFixed(Math.abs(x) < 10 ? 3 : 1).replace(/\.?0+$/, ""));
const counted = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
const agentColor = (agent) => d3.schemeTableau10[Math.max(0, data.run.agents.indexOf(agent)) % 10];
