// A Chromium of the machine's own, driven by playwright-core. Every request that is not for the page itself is noted.
import { chromium } from "playwright-core";

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--force-color-profile=srgb"];

// launch() gives the browser a new, empty profile of its own and removes it again.
export async function withBrowser(executablePath, use) {
  const browser = await chromium.launch({ executablePath, headless: true, args: FLAGS });
  try {
    return await use(browser);
  } finally {
    await browser.close();
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
