import { expect } from "@effect/vitest"
import { ConfigProvider, Effect } from "effect"
import { execFileSync } from "node:child_process"
import { readFileSync } from "node:fs"
import * as Config from "#src/boot/config.ts"
import { variables } from "#src/boot/variables.ts"
import { envFile, files } from "../../scripts/configuration.ts"
import { it } from "../support/it.ts"

it.each(Object.entries(files))("%s has every variable, as npm run configuration writes it", (path, text) => {
  expect(readFileSync(path, "utf8")).toBe(text())
})

// Seen failing with a variable that config.ts did not read.
it.effect("every described variable is read, and no other", function* () {
  const asked = new Set<string>()
  const provider = ConfigProvider.make((path) => {
    if (path.length > 0) asked.add(path.join("_"))
    return Effect.succeed(undefined)
  })
  yield* Effect.provide(Config.load, ConfigProvider.layer(provider))
  expect([...asked].toSorted()).toEqual(Object.keys(variables).toSorted())
})

it.effect("every example of the file of variables is a valid value in a shell", function* () {
  // Files of an operator, and what a command makes.
  const others = { OIDC_PROVIDERS: "", PORTAL_LOGO: "", ADMIN_TOKEN: "0123456789abcdef", METRICS_TOKEN: "" }
  const key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
  const script = `set -a; ${envFile().replaceAll(/^#(?=[A-Z_]+=)/gm, "")}\nenv -0`
  const set = execFileSync("bash", ["--norc", "-euc", script], {
    env: { PATH: process.env["PATH"] },
    encoding: "utf8",
  })
  const environment = Object.fromEntries(
    set.split("\0").flatMap((line) => {
      const [name = "", ...value] = line.split("=")
      return name in variables ? [[name, value.join("=")]] : []
    }),
  )
  expect(Object.keys(environment).toSorted()).toEqual(Object.keys(variables).toSorted())
  const settings = yield* Effect.provide(
    Config.load,
    ConfigProvider.layer(ConfigProvider.fromEnvRecord({ ...environment, ...others, ENCRYPTION_KEY: key })),
  )
  expect(settings.people?.rules).toHaveLength(2)
  expect(settings.portal.text).toBe("Webhooks of Acme")
  expect([...settings.nodes.keys()]).toEqual(["east", "west"])
})
