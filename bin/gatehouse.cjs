#!/usr/bin/env node
"use strict"
// oxlint-disable-next-line import/no-unassigned-import -- it checks the version of Node
require("./node.cjs")

// A checkout has the sources, and the package has what is built of them.
var sources = require("fs").existsSync(__dirname + "/../src/cli/main.ts")
import(sources ? "../src/cli/main.ts" : "../dist/cli/main.js").catch(function (error) {
  process.stderr.write(String((error && error.stack) || error) + "\n")
  process.exit(1)
})
