// @ts-expect-error -- it comes without types
import autocannon from "autocannon"
import { readFileSync } from "node:fs"

/**
 * The load where wrk is not installed: sends the requests of a file in turn for some seconds, and prints what wrk's
 * script prints.
 */
const [file, seconds] = process.argv.slice(2)
const { connections, requests, url } = JSON.parse(readFileSync(file!, "utf8"))
let at = 0
const found = await autocannon({
  url,
  connections,
  duration: Number(seconds),
  timeout: 30,
  // One request at a time: autocannon would prepare every request for every connection.
  requests:
    requests.length === 1
      ? requests
      : [{ setupRequest: (request: object) => ({ ...request, ...requests[at++ % requests.length] }) }],
})
process.stdout.write(
  `\n${JSON.stringify({
    requests: found["2xx"] + found.non2xx,
    micros: found.duration * 1e6,
    p50: found.latency.p50,
    p99: found.latency.p99,
    refused: found.non2xx,
    failed: found.errors,
  })}\n`,
)
