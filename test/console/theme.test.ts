import { expect } from "@effect/vitest"
import { consoles, expectAccessible, inTab, withConsoles } from "./support.ts"

const ground = "getComputedStyle(document.body).backgroundColor"
/** The grounds of pages: `--ground` of the styles. */
const [light, dark] = ["rgb(246, 248, 250)", "rgb(13, 17, 23)"]
const stored = "JSON.stringify({ ...localStorage })"

withConsoles("the theme", consoles, (it) => {
  it.effect("is that of the device, until the reader chooses one; this browser keeps it", () =>
    inTab("/orgs", async (page) => {
      await page.locator(".sidebar-foot summary:visible").click()
      const button = (name: string) => page.getByRole("group", { name: "Theme" }).getByRole("button", { name })
      const expectGround = (wanted: string) => expect.poll(() => page.evaluate(ground)).toBe(wanted)
      await page.emulateMedia({ colorScheme: "light" })
      await expectGround(light)
      await page.emulateMedia({ colorScheme: "dark" })
      await expectGround(dark)
      await button("Light").press("Enter")
      await expectGround(light)
      await expect.poll(() => button("Light").getAttribute("aria-pressed")).toBe("true")
      await expectAccessible(page)
      await button("Dark").click()
      await expectGround(dark)
      await page.reload()
      await page.locator(".sidebar-foot summary:visible").click()
      await button("Dark").waitFor()
      await expectGround(dark)
      await expectAccessible(page)
      await button("System").click()
      await expectGround(light)
      expect(await page.evaluate(stored)).toBe("{}")
    }),
  )
})
