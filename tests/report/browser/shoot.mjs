// node shoot.mjs CHROMIUM PAGE.html OUT.png WIDTH HEIGHT light|dark [#eN]: a picture of the page, or of one experiment.
import { pathToFileURL } from "node:url";
import { opened, openPage, withBrowser } from "./browser.mjs";

const [chromium, file, out, width, height, colorScheme, hash = ""] = process.argv.slice(2);
await withBrowser(chromium, async (browser) => {
  const context = await browser.newContext({ colorScheme, viewport: { width: Number(width), height: Number(height) } });
  const [page] = await openPage(context, pathToFileURL(file).href + hash);
  if (hash) await opened(page);
  await page.evaluate(() => document.activeElement.blur());
  await page.screenshot({ path: out });
});
