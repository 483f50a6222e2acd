import type { Page } from "playwright-core"
import { painted } from "./checks.ts"

/** The boxes that make a page. Their places and widths come from the styles, not from the fonts of a machine. */
const boxes = ".sidebar, .topbar, .page, .page-head, .card, .card-head, .card-body, .tabs, .table, .filters, .timeline"
const maxBoxes = 60
const widths = [1280, 390] as const
const schemes = ["light", "dark"] as const

/** A line for each box: what it is, and what the styles make of it. */
export type Layout = Readonly<Record<string, ReadonlyArray<string>>>

/** "card 280 402": the left edge and the width in pixels. */
const places = `({ left, width }) => [Math.round(left), Math.round(width)].join(" ")`
/** "card rgb(255, 255, 255) on rgb(22, 32, 43) 14px": text, ground and size of the text. */
const colours = `(_, { backgroundColor, color, fontSize }) => color + " on " + backgroundColor + " " + fontSize`

const read = async (page: Page, of: string) => {
  await page.evaluate(painted)
  return (await page.evaluate(
    `[...document.querySelectorAll(${JSON.stringify(boxes)})].slice(0, ${maxBoxes})
      .filter((box) => box.checkVisibility())
      .map((box) => box.classList[0] + " " + (${of})(box.getBoundingClientRect(), getComputedStyle(box)))`,
  )) as ReadonlyArray<string>
}

/** The layout of the open page: places at two widths, and colours in light and dark. */
export const layoutOf = async (page: Page): Promise<Layout> => {
  const layout: Record<string, ReadonlyArray<string>> = {}
  for (const width of widths) {
    await page.setViewportSize({ width, height: 900 })
    layout[width] = await read(page, places)
  }
  await page.setViewportSize({ width: 1280, height: 900 })
  for (const colorScheme of schemes) {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" })
    layout[colorScheme] = [...new Set(await read(page, colours))]
  }
  await page.emulateMedia({ colorScheme: "light" })
  return layout
}

/** How far an edge may be from its place, in pixels: browsers round in different ways. */
const tolerance = 4

const isNear = (a: string, b: string) => {
  const [as, bs] = [a.split(" "), b.split(" ")]
  return (
    as.length === bs.length &&
    as.every((part, i) => part === bs[i] || Math.abs(Number(part) - Number(bs[i])) <= tolerance)
  )
}

/** What differs between two layouts, in words. */
export const differences = (wanted: Layout, found: Layout): ReadonlyArray<string> =>
  Object.keys({ ...wanted, ...found }).flatMap((view) => {
    const [a, b] = [wanted[view] ?? [], found[view] ?? []]
    return Array.from(
      { length: Math.max(a.length, b.length) },
      (_, i) => [a[i] ?? "nothing", b[i] ?? "nothing"] as const,
    )
      .filter(([a, b]) => !isNear(a, b))
      .map(([a, b]) => `${view}: ${a} is ${b}`)
  })
