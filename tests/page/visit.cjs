"use strict";
// Visits pages with a real browser: what a console, axe and a keyboard say of them. JSON in by stdin, JSON out.
// Started by test_browser.py, with NODE_PATH set to where playwright-core and axe-core are.

const { readFileSync } = require("node:fs");
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf-8");

/** The element that has the focus, as text: its tag, name and whether its focus is drawn. */
const focused = () => {
  const e = document.activeElement, style = getComputedStyle(e);
  const drawn = style.outlineStyle !== "none" || style.boxShadow !== "none";
  return `${e.tagName.toLowerCase()} ${(e.getAttribute("aria-label") ?? e.title ?? "") || e.textContent.trim().slice(0, 40)}${drawn ? "" : " (focus not drawn)"}`;
};

async function visit(browser, { url, width, dark, keys = [], type = {}, read = null, shot = null, full = false }) {
  const context = await browser.newContext({ viewport: { width, height: width < 500 ? 844 : 900 }, colorScheme: dark ? "dark" : "light", bypassCSP: true });
  const page = await context.newPage(), errors = [], requests = [];
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("request", (request) => /^https?:/.test(request.url()) && requests.push(request.url()));
  await page.goto(url, { waitUntil: "load" });
  await page.waitForTimeout(800);
  const focus = [];
  for (const key of keys) {
    await page.keyboard.press(key);
    await page.waitForTimeout(120);
    focus.push(await page.evaluate(focused));
  }
  for (const [where, text] of Object.entries(type)) {
    await page.locator(where).first().pressSequentially(text);
    await page.waitForTimeout(1500);
  }
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => axe.run(document, { preload: false, runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"] }));
  const found = {
    errors, requests, focus,
    violations: violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.target.join(" ")}: ${node.any[0]?.message ?? node.failureSummary}`)),
    overflow: await page.evaluate(() => document.documentElement.scrollWidth - innerWidth),
    address: page.url(),
    read: read && (await page.evaluate(read)),
  };
  if (shot) await page.screenshot({ path: shot, fullPage: full });
  await context.close();
  return found;
}

(async () => {
  const { program, visits } = JSON.parse(readFileSync(0, "utf-8"));
  const args = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"];
  const browser = await chromium.launch({ executablePath: program, args });
  const results = [];
  for (const each of visits) results.push(await visit(browser, each));
  await browser.close();
  process.stdout.write(JSON.stringify(results));
})();
