#!/usr/bin/env node
"use strict"
// Old syntax, and no import at the top: any version of Node can read this file, and say which one is needed.

var needed = [22, 19]
var found = process.versions.node.split(".").map(Number)

if (found[0] < needed[0] || (found[0] === needed[0] && found[1] < needed[1])) {
  process.stderr.write(
    "gatehouse: This is Node " +
      process.versions.node +
      ", and Gatehouse needs Node " +
      needed.join(".") +
      " or newer. Install Node 24: https://nodejs.org\n",
  )
  process.exit(1)
}
// A checkout has the sources, and the package has what is built of them.
var sources = require("fs").existsSync(__dirname + "/../src/cli/main.ts")
import(sources ? "../src/cli/main.ts" : "../dist/cli/main.js").catch(function (error) {
  process.stderr.write(String((error && error.stack) || error) + "\n")
  process.exit(1)
})
