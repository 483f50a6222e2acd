"use strict"
// What `npm start` needs in a checkout: a version of Node, the packages, and the console.
// oxlint-disable-next-line import/no-unassigned-import
require("../bin/node.cjs")
const { spawnSync } = require("node:child_process")
const { accessSync, constants, existsSync, mkdirSync } = require("node:fs")
const { join } = require("node:path")

const root = join(__dirname, "..")
const has = (path) => existsSync(join(root, path))
const say = (sentence) => process.stderr.write(`gatehouse: ${sentence}\n`)

const isWritable = () => {
  try {
    mkdirSync(join(root, "dist"), { recursive: true })
    accessSync(join(root, "dist"), constants.W_OK)
    return true
  } catch {
    return false
  }
}

const buildConsole = () => {
  const vite = join(root, "node_modules/vite/bin/vite.js")
  const without = "The service starts without the console"
  if (!existsSync(vite)) return say(`${without}: npm ci, without --omit=dev, installs what builds it.`)
  if (!isWritable()) return say(`${without}: its folder dist cannot be written.`)
  say("Building the console, once.")
  const { status } = spawnSync(process.execPath, [vite, "build", "src/console", "--logLevel", "error"], {
    cwd: root,
    stdio: "inherit",
  })
  if (status !== 0) say(`${without}: npm run build:console says more.`)
}

if (!has("node_modules/effect")) {
  say("The packages are not installed. Run npm ci, then npm start again.")
  process.exitCode = 1
} else if (!has("dist/console/index.html")) buildConsole()
