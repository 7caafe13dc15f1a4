// Opens report pages in a real browser, as a reader would, and checks what a page must do:
//   node report.mjs MODULES SCREENSHOTS PAGE.html...
// Prints one line of JSON for each page; exits with 1 where something does not hold.
import { createRequire } from "node:module";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [modules, screenshots, ...pages] = process.argv.slice(2);
const require = createRequire(join(resolve(modules), "node_modules", "here.js"));
const { chromium } = require("playwright-core");
const axe = require.resolve("axe-core/axe.min.js");

const SIZES = { wide: { width: 1280, height: 900 }, phone: { width: 390, height: 844 } };
// What WCAG 2.2 asks at levels A and AA, and what axe counts as good practice.
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

const profile = mkdtempSync(join(tmpdir(), "irqlab-browser-"));
const browser = await chromium.launchPersistentContext(profile, {
  executablePath: process.env.IRQLAB_CHROMIUM || "/usr/bin/chromium",
  headless: true,
  viewport: SIZES.wide,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"],
});

// Several holds that fail are all reported.
const problems = [];
const hold = (page, is, what) => { if (!is) problems.push(`${page}: ${what}`); };

// Each picture and each section by itself.
const shootParts = async (page, name, what) => {
  for (const part of await page.locator("figure[id], main > section[id]").all()) {
    await part.screenshot({ path: join(screenshots, `${name}-${await part.getAttribute("id")}-${what}.png`) });
  }
};

const shoot = async (page, name, what) => {
  mkdirSync(screenshots, { recursive: true });
  await page.screenshot({ path: join(screenshots, `${name}-${what}.png`), fullPage: true });
};

// Accessibility of what is shown now. axe is put in by the browser, not by the page, whose policy forbids it.
const accessible = async (page, name, state) => {
  const { violations } = await page.evaluate((rules) => globalThis.axe.run({ runOnly: rules }), RULES);
  for (const one of violations) {
    const places = one.nodes.slice(0, 3).map((node) => `${node.target.join(" ")}: ${node.failureSummary}`);
    hold(name, false, `axe, ${state}: ${one.id} (${one.help}): ${places.join("; ")}`);
  }
  return violations.length;
};

const tables = async (page, name) => {
  const inputs = await page.locator("input[data-filter]:visible").count();
  if (inputs > 0) {
    const input = page.locator("input[data-filter]:visible").first();
    const table = page.locator(`[id="${await input.getAttribute("data-filter")}"]`);
    const rows = table.locator("tbody tr:not(.group)");
    const all = await rows.count();
    const word = (await rows.last().locator("td").first().textContent()).trim().split(/\s+/)[0];
    await input.fill(word);
    const shown = await rows.locator("visible=true").count();
    hold(name, shown > 0 && shown <= all, `the filter ${word} shows ${shown} of ${all} rows`);
    const texts = await rows.locator("visible=true").allTextContents();
    hold(name, texts.every((text) => text.toLowerCase().includes(word.toLowerCase())), `the filter ${word} shows other rows`);
    await input.fill("nothing has this name \u2603");
    hold(name, await rows.locator("visible=true").count() === 0, "a filter of nothing shows rows");
    await input.fill("");
    hold(name, await rows.locator("visible=true").count() === all, "no filter hides rows");
  }
  const sortable = page.locator("table[data-sortable]");
  for (let at = 0; at < await sortable.count(); at += 1) {
    const table = sortable.nth(at);
    const rows = await table.locator("tbody").first().locator("tr:not(.group)").count();
    const head = table.locator("thead th.number").first();
    if (rows < 3 || !(await head.count())) continue;
    const column = await head.evaluate((cell) => cell.cellIndex);
    const numbers = () => table.locator("tbody").first().locator("tr:not(.group)").evaluateAll((all, place) =>
      all.map((row) => parseFloat(row.cells[place].textContent.replace(/,/g, ""))).filter((one) => !isNaN(one)), column);
    // The page may still move after the filter, and the first click miss the heading.
    for (let tries = 0; tries < 3 && await head.getAttribute("aria-sort") === null; tries += 1) {
      await head.locator("button").click();
    }
    const down = await numbers();
    hold(name, await head.getAttribute("aria-sort") === "descending", "a sorted column does not say so");
    hold(name, down.every((one, place) => place === 0 || down[place - 1] >= one), `not descending: ${down.slice(0, 8)}`);
    await head.locator("button").press("Enter");
    const up = await numbers();
    hold(name, up.every((one, place) => place === 0 || up[place - 1] <= one), `not ascending: ${up.slice(0, 8)}`);
    return { filters: inputs, sorted: rows };
  }
  return { filters: inputs, sorted: 0 };
};

const zoom = async (page, name) => {
  const figures = page.locator(".medium:has(.tools):visible");
  const count = await figures.count();
  for (let at = 0; at < count; at += 1) {
    const figure = figures.nth(at);
    const svg = figure.locator(".picture svg");
    const before = await svg.innerHTML();
    const labels = () => svg.locator("text").evaluateAll((all) => all.filter((one) => one.style.display !== "none").map((one) => one.textContent));
    await figure.getByRole("button", { name: "Zoom in" }).click();
    hold(name, await svg.innerHTML() !== before, `figure ${at + 1}: the button changes nothing`);
    hold(name, (await figure.locator("output.range").textContent()).includes(" to "), `figure ${at + 1}: the range is not said`);
    hold(name, (await labels()).length > 0, `figure ${at + 1}: no numbers`);
    await figure.locator(".picture").press("+");
    if (at === 0) await figure.screenshot({ path: join(screenshots, `${name}-zoomed.png`) });
    await figure.locator(".picture").press("0");
    hold(name, await figure.locator("output.range").textContent() === "", `figure ${at + 1}: 0 does not show the whole axis`);
    const after = await labels();
    hold(name, JSON.stringify(after) === JSON.stringify(await page.evaluate(([html]) => {
      const holder = document.createElement("div");
      holder.innerHTML = `<svg>${html}</svg>`;
      return [...holder.querySelectorAll("text")].map((one) => one.textContent);
    }, [before])), `figure ${at + 1}: the numbers are not those of before`);
    // The value at the pointer, and the drag across the middle half of the first plot.
    const plot = JSON.parse(await svg.getAttribute("data-plots"))[0];
    await svg.scrollIntoViewIfNeeded();
    const [from, to] = await svg.evaluate((element, plot) => [0.25, 0.75].map((share) => {
      const point = new DOMPoint(plot.x[0] + share * (plot.x[1] - plot.x[0]), (plot.y[0] + plot.y[1]) / 2).matrixTransform(element.getScreenCTM());
      return [point.x, point.y];
    }), plot);
    await page.mouse.move(...from);
    const readout = figure.locator("output.readout");
    hold(name, (await readout.textContent()).startsWith("at the pointer: "), `figure ${at + 1}: no value at the pointer`);
    await page.mouse.down();
    await page.mouse.move(...to, { steps: 4 });
    await page.mouse.up();
    hold(name, (await figure.locator("output.range").textContent()).includes(" to "), `figure ${at + 1}: a drag does not zoom`);
    await figure.getByRole("button", { name: "Whole axis" }).click();
  }
  return count;
};

// Each part of a bar says its value to a pointer above it.
const hovers = async (page, name) => {
  const values = page.locator("svg rect.hover");
  const texts = await values.locator("title").allTextContents();
  const bars = await page.locator("figure h3", { hasText: /^CPU time of each interrupt context/ }).count();
  hold(name, bars === 0 || texts.length > 0, "bars of contexts have no values");
  hold(name, texts.length === await values.count() && texts.every((text) => text.includes(": ")), `bars without values: ${texts}`);
  return texts.length;
};

const check = async (path) => {
  const name = basename(path, ".html");
  const page = await browser.newPage();
  const said = [], asked = [];
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) said.push(message.text()); });
  page.on("pageerror", (error) => said.push(String(error)));
  page.on("request", (request) => { if (!request.url().startsWith("file:") && !request.url().startsWith("data:")) asked.push(request.url()); });
  await page.emulateMedia({ colorScheme: "light" });
  await page.goto(pathToFileURL(resolve(path)).href);
  const found = { page: name };
  found.title = await page.title();
  hold(name, await page.locator("h1").count() === 1, "not one first heading");
  hold(name, await page.locator("#answers .sentence").count() > 0, "no answer");
  await page.screenshot({ path: join(screenshots, `${name}-first.png`) });
  await shoot(page, name, "light");
  await shootParts(page, name, "light");
  Object.assign(found, await tables(page, name));
  found.zoomed = await zoom(page, name);
  found.hovers = await hovers(page, name);
  await page.evaluate(() => scrollTo(0, 0));
  await page.addScriptTag({ path: axe }).catch(() => {});
  // The policy of the page refuses a script element; the debugger's evaluation is not the page's.
  if (!(await page.evaluate(() => "axe" in globalThis))) {
    const { readFileSync } = await import("node:fs");
    await page.evaluate(readFileSync(axe, "utf8"));
  }
  const policy = said.filter((text) => text.includes("Content Security Policy"));
  hold(name, policy.length > 0, "the policy admits a foreign script");
  hold(name, said.length === policy.length, `console: ${said.filter((text) => !policy.includes(text)).slice(0, 3)}`);
  await page.evaluate(() => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
  found.violations = await accessible(page, name, "light");
  await page.evaluate(() => document.querySelectorAll("details").forEach((one) => { one.open = false; }));
  await page.selectOption("#theme", "dark");
  found.violations += await accessible(page, name, "dark, chosen");
  await shoot(page, name, "dark");
  await page.selectOption("#theme", "auto");
  await page.emulateMedia({ colorScheme: "dark" });
  found.violations += await accessible(page, name, "dark, the system's");
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize(SIZES.phone);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  hold(name, wide <= SIZES.phone.width, `a phone's page is ${wide} wide`);
  // A table that is wider than the phone says that it scrolls, from the frame after the change of size on.
  await page.evaluate(() => new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next))));
  const silent = await page.locator(".scroll").evaluateAll((all) => all.filter((place) =>
    place.scrollWidth > place.clientWidth + 1 && place.nextElementSibling.hidden).length);
  hold(name, silent === 0, `${silent} tables are wider than a phone, and do not say so`);
  found.violations += await accessible(page, name, "phone");
  await shoot(page, name, "phone");
  await page.setViewportSize(SIZES.wide);
  // The keyboard reaches the answers, the colours, and every picture and table.
  await page.reload();
  await page.keyboard.press("Tab");
  hold(name, await page.evaluate(() => document.activeElement.className) === "skip", "the first key press does not reach the skip link");
  await page.pdf({ path: join(screenshots, `${name}.pdf`), format: "A4" });
  hold(name, !(await page.evaluate(() => "hostile" in globalThis)), "a name of the run was executed");
  hold(name, asked.length === 0, `asks the network: ${asked.slice(0, 3)}`);
  await page.close();
  console.log(JSON.stringify(found));
};

// Two pages at a time.
const left = [...pages];
const work = async () => { while (left.length) await check(left.shift()); };
await Promise.all([work(), work()]);
await browser.close();
rmSync(profile, { recursive: true, force: true });
for (const problem of problems) console.error(problem);
process.exitCode = problems.length ? 1 : 0;
