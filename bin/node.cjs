"use strict"
// Old syntax, and no import: any version of Node can read this file, and say which one is needed.

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
