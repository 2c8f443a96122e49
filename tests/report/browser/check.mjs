// node check.mjs CHROMIUM PAGE.html [MAX_CELLS]: looks at one report as its readers do and prints what it saw as JSON.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { opened, openPage, withBrowser } from "./browser.mjs";

const [chromium, file, most = "12"] = process.argv.slice(2);
const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const url = pathToFileURL(file).href;

// rules: null for all of them. Dark differs from light in its colours only, so there contrast is what is checked.
async function violations(page, rules) {
  await page.evaluate(axe);
  const options = { resultTypes: ["violations"], ...(rules && { runOnly: rules }) };
  const found = await page.evaluate((given) => window.axe.run(document, given), options);
  return found.violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => `${n.html.slice(0, 160)} ${n.failureSummary.slice(0, 200)}`).join(" | ")}`);
}

const overflow = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

async function look(browser, colorScheme, width, checked, rules, cellsAtMost) {
  const context = await browser.newContext({ colorScheme, viewport: { width, height: 800 } });
  const [page, seen] = await openPage(context, url);
  const out = { overview: { axe: await violations(page, rules), overflow: await overflow(page) }, details: [] };
  const cells = await page.evaluate(() => [...new Set([...document.querySelectorAll("table[data-grid] td a, .failures a")].map((a) => a.hash))]);
  out.cells = cells.length;
  const step = Math.max(1, Math.floor(cells.length / cellsAtMost));
  for (const [number, cell] of cells.filter((_, i) => i % step === 0).entries()) {
    await page.goto(url + cell);
    await opened(page);
    const detail = await page.evaluate(() => ({
      title: document.getElementById("d-title").textContent,
      focus: document.activeElement.id,
      replay: document.getElementById("d-replay").textContent,
      story: document.querySelector(".story")?.textContent ?? "",
      coins: document.querySelectorAll("svg .coin").length,
      again: document.querySelectorAll("svg .coin-ring").length,
      shapes: document.querySelectorAll("svg [data-t]").length,
      leases: document.querySelectorAll("svg rect[class*=who-][y]").length,
      text: document.querySelector("pre.timeline")?.textContent ?? "",
      printed: [...document.querySelectorAll("details")].filter((d) => d.firstChild.textContent.startsWith("What ")).map((d) => d.querySelector("pre").textContent),
      raw: [...document.querySelectorAll("details")].filter((d) => d.firstChild.textContent.startsWith("Raw events")).flatMap((d) => d.querySelector("pre").textContent.split("\n").map((line) => JSON.parse(line).what)),
      markup: document.querySelectorAll("#d-body img, #d-body script, #d-body b").length,
    }));
    detail.cell = cell;
    detail.overflow = await overflow(page);
    if (number < checked) detail.axe = await violations(page, rules);
    out.details.push(detail);
    await page.keyboard.press("Escape");
    await page.waitForFunction(() => !document.getElementById("overview").hidden);
  }
  const title = await page.title();
  await context.close();
  return { ...out, ...seen, title };
}

// Only the keyboard: into the first matrix, through it, into an experiment, along its drawing, and back.
async function keyboard(browser) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const [page] = await openPage(context, url);
  const hash = () => page.evaluate(() => document.activeElement.hash || document.activeElement.id || document.activeElement.tagName);
  const matrix = await page.evaluate(() => [...(document.querySelector("table[data-grid]")?.tBodies[0].rows ?? [])].map((row) => [...row.querySelectorAll("td")].map((td) => td.querySelector("a")?.hash ?? null)));
  if (!matrix.length) return null;
  const inMatrix = () => page.evaluate(() => Boolean(document.activeElement.closest("table[data-grid]")));
  let tabs = 0;
  while (!(await inMatrix()) && tabs < 12) { await page.keyboard.press("Tab"); tabs += 1; }
  const reached = new Set([await hash()]);
  for (let row = 0; row < matrix.length; row += 1) {
    await page.keyboard.press("Home");
    reached.add(await hash());
    for (let column = 1; column < matrix[row].length; column += 1) { await page.keyboard.press("ArrowRight"); reached.add(await hash()); }
    await page.keyboard.press("Home");
    await page.keyboard.press("ArrowDown");
  }
  const chosen = await hash();
  await page.keyboard.press("Enter");
  await opened(page);
  const landed = await page.evaluate(() => [document.activeElement.id, location.hash]);
  const told = new Set();
  for (let tab = 0; tab < 14 && !(await page.evaluate(() => document.activeElement.dataset?.t)); tab += 1) await page.keyboard.press("Tab");
  for (let n = 0; n < 5; n += 1) { told.add(await page.evaluate(() => document.querySelector(".point")?.textContent)); await page.keyboard.press("ArrowRight"); }
  await page.keyboard.press("Escape");
  const back = await hash();
  return { tabs, wanted: [...new Set(matrix.flat().filter(Boolean))], reached: [...reached], chosen, landed, told: [...told], back };
}

// Only the mouse: a cell is clicked, a coin pointed at, the replay command copied, and the browser goes back.
async function mouse(browser) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const [page] = await openPage(context, url);
  const cell = page.locator("table[data-grid] td a").first();
  if (!(await cell.count())) return null;
  const wanted = await cell.evaluate((a) => a.hash);
  await cell.click();
  await opened(page);
  const landed = await page.evaluate(() => location.hash);
  const coin = page.locator("svg g:has(.coin)").first();
  const pointed = (await coin.count()) ? [await coin.getAttribute("aria-label"), await (async () => { await coin.hover(); return page.locator(".point").textContent(); })()] : null;
  await page.locator("#d-copy").click();
  await page.waitForFunction(() => document.getElementById("d-copied").textContent);
  const copied = [await page.locator("#d-replay").textContent(), await page.evaluate(() => navigator.clipboard.readText()), await page.locator("#d-copied").textContent()];
  await page.goBack();
  await page.waitForFunction(() => !document.getElementById("overview").hidden);
  return { wanted, landed, pointed, copied };
}

const result = await withBrowser(chromium, async (browser) => ({
  light: await look(browser, "light", 1280, 2, null, Number(most)),
  dark: await look(browser, "dark", 1280, 2, ["color-contrast"], 2),
  phone: await look(browser, "light", 390, 0, ["color-contrast", "target-size", "scrollable-region-focusable"], 3),
  keyboard: await keyboard(browser),
  mouse: await mouse(browser),
}));
process.stdout.write(JSON.stringify(result));
