import axe, { type AxeResults } from "axe-core"
import type { Locator, Page } from "playwright-core"
import { expect } from "vitest"

/**
 * Waits in the page until it was painted twice: only then are all rules those of a new size or scheme. A browser draws
 * no frame where it sees nothing to draw; a second is enough then.
 */
export const painted = `new Promise((done) => {
  setTimeout(done, 1_000)
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50)))
})`

const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]

/** What axe finds on the page: rule, element, and what to do. */
const findings = async (page: Pick<Page, "evaluate">) => {
  const options = { runOnly: { type: "tag", values: tags }, resultTypes: ["violations"] }
  // Evaluated by the debugger: the policy of the page allows no script of others.
  const results = (await page.evaluate(
    `(async () => { ${axe.source}; return await axe.run(document, ${JSON.stringify(options)}) })()`,
  )) as AxeResults
  return results.violations.map(({ help, id, nodes }) => `${id}: ${help}: ${nodes.map(({ html }) => html).join(" ")}`)
}

/** Whether axe finds nothing in a page, or in a frame of it, in light and in dark. */
export const expectAccessible = async (page: Page, frame: Pick<Page, "evaluate"> = page) => {
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" })
    // A page that changes meanwhile can mislead axe. Counted, because a look may take long.
    let found = await findings(frame)
    for (let more = 10; more > 0 && found.length > 0; more--) {
      await page.waitForTimeout(1_000)
      found = await findings(frame)
    }
    expect(found, `${page.url()} in ${colorScheme}`).toEqual([])
  }
  await page.emulateMedia({ colorScheme: "light" })
}

/** Whether the page is never wider than the window, from 360 pixels to 4K. */
export const expectFits = async (page: Page) => {
  for (const width of [360, 768, 1024, 1130, 1280, 3840]) {
    await page.setViewportSize({ width, height: 900 })
    // A list that measures itself follows a new width a moment later.
    await expect
      .poll(() => page.evaluate("document.documentElement.scrollWidth"), { message: `${page.url()} at ${width}` })
      .toBeLessThanOrEqual(width + 1)
  }
  await page.setViewportSize({ width: 1280, height: 900 })
  // A click while the page still moves into place would miss its button.
  await page.evaluate(painted)
}

/** Types into a field as soon as it has the focus, which comes a moment after what opens it. */
export const typeInto = async (field: Locator, text: string) => {
  await field.and(field.page().locator(":focus")).waitFor()
  await field.page().keyboard.insertText(text)
}
