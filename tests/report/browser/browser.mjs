// A Chromium of the machine's own, driven by playwright-core. Every request that is not for the page itself is noted.
import { chromium } from "playwright-core";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--force-color-profile=srgb"];

export async function withBrowser(executablePath, options, use) {
  const profile = await mkdtemp(join(tmpdir(), "lockproof-browser-"));
  const context = await chromium.launchPersistentContext(profile, { executablePath, headless: true, args: FLAGS, ...options });
  try {
    return await use(context);
  } finally {
    await context.close();
    await rm(profile, { recursive: true, force: true });
  }
}

export async function openPage(context, url) {
  const page = await context.newPage();
  const seen = { requests: [], console: [], errors: [] };
  page.on("request", (request) => { if (request.url() !== url && !request.url().startsWith("data:")) seen.requests.push(request.url()); });
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) seen.console.push(message.text()); });
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  await page.goto(url);
  return [page, seen];
}

export const opened = (page) => page.waitForFunction(() => {
  const detail = document.getElementById("detail");
  return !detail.hidden && document.getElementById("d-body").childElementCount > 0;
});
