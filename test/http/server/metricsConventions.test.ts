import { assert, describe, it } from "@effect/vitest"
import { conventionFaults, parse } from "../../support/prometheus.ts"
import { selectorsOf, selects } from "../../support/promql.ts"

const good = [
  "# HELP http_request_duration_seconds How long requests took.",
  "# TYPE http_request_duration_seconds histogram",
  'http_request_duration_seconds_bucket{route="/a",le="0.1"} 1',
  'http_request_duration_seconds_bucket{route="/a",le="+Inf"} 2',
  'http_request_duration_seconds_sum{route="/a"} 1.5',
  'http_request_duration_seconds_count{route="/a"} 2',
  "# HELP gatehouse_things_total Things.",
  "# TYPE gatehouse_things_total counter",
  'gatehouse_things_total{what="a \\"quoted\\" one"} 1',
  "",
].join("\n")

describe("the check of Prometheus' conventions", () => {
  it("finds no fault in correct metrics", () => {
    assert.deepStrictEqual(conventionFaults(parse(good)), [])
  })

  it.each<readonly [from: string | RegExp, to: string]>([
    [/gatehouse_things_total/g, "gatehouse_things"],
    [/gatehouse_things_total/g, "things_total"],
    [/gatehouse_things_total/g, "gatehouse_milliseconds_total"],
    [/gatehouse_things_total/g, "gatehouse_seconds_of_things_total"],
    [/gatehouse_things_total/g, "http_request_duration_seconds"],
    ["TYPE gatehouse_things_total counter", "TYPE gatehouse_things_total gauge"],
    ["{what=", "{What="],
    ["{what=", "{le="],
    [/(gatehouse_things_total\{.*)/, "$1\n$1"],
    [/ 1\n$/, " -1\n"],
    ['le="+Inf"} 2', 'le="+Inf"} 3'],
    ['le="+Inf"} 2', 'le="0.2"} 2'],
    ['le="0.1"} 1', 'le="0.1"} 3'],
    [/.*_sum.*\n/, ""],
    [/.*_count.*\n/, ""],
  ])("finds the fault: %s → %s", (from, to) => {
    const bad = good.replace(from, to)
    assert.notStrictEqual(bad, good)
    assert.notDeepEqual(conventionFaults(parse(bad)), [])
  })

  it.each<readonly [from: string | RegExp, to: string]>([
    [/# HELP gatehouse.*\n/, ""],
    [/# TYPE gatehouse.*\n/, ""],
    ["How long requests took.", ""],
    ['"a \\"quoted\\" one"', '"a "quoted" one"'],
    ['route="/a",le', 'le="1",le'],
    [" 1.5", " much"],
    [/\n$/, ""],
  ])("refuses invalid text: %s → %s", (from, to) => {
    const bad = good.replace(from, to)
    assert.notStrictEqual(bad, good)
    assert.throws(() => parse(bad))
  })
})

describe("the selectors of a query", () => {
  const samples = parse(good).flatMap((family) => family.samples)
  it.each([
    ['sum by (what) (rate(gatehouse_things_total{what=~".*quoted.*"}[$__rate_interval])) > 0', 1],
    ['gatehouse_things_total{job="gatehouse"}', 0],
    ["gatehouse_things_total / on (what) other", 1],
    ['rate(gatehouse_things_total{what=~"a.*"}[5m])', 1],
    ['rate(gatehouse_things_total{what!~"a.*"}[5m])', 0],
    ['gatehouse_things_total{where="here"}', 0],
    ['http_request_duration_seconds_bucket{le="0.1"}', 1],
    ["gatehouse_thing_total", 0],
  ])("select existing series: %s", (query, expected) => {
    const [selector = assert.fail()] = selectorsOf(query).selectors
    assert.lengthOf(
      samples.filter((sample) => selects(selector, sample)),
      expected,
    )
  })
})
