import { expect } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import * as Yaml from "effect/encoding/Yaml"
import { spawnSync } from "node:child_process"
import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { layer } from "../../support/it.ts"
import { conventionFaults, parse, type Sample } from "../../support/prometheus.ts"
import { type ScrapeConfig, type Selector, selects, selectorsOf, targetLabels } from "../../support/promql.ts"
import { makeReceiver } from "../../support/receiver.ts"
import { onPostgres, TestServer } from "../../support/server.ts"
import { eventually } from "../../support/wait.ts"
import { makeTenant } from "../tenants.ts"

/**
 * Promise (Metrics and traces): A scraper gets OpenMetrics with the traces of requests, or Prometheus' text, as it
 * asks. Traces go out with the headers, the name and the attributes of the `OTEL_` variables.
 */

/** Promise (Metrics and traces) */

const file = (path: string) => readFileSync(new URL(`../../../${path}`, import.meta.url), "utf8")
const page = file("docs/observability.md")
/** The cells of the table rows whose first cell matches. */
const rows = (first: RegExp) =>
  page
    .split("\n")
    .filter((line) => line.startsWith("| "))
    .map((line) =>
      line
        .slice(1, -1)
        .split("|")
        .map((cell) => cell.trim()),
    )
    .filter(([cell]) => first.test(cell!))
const dashboard = JSON.parse(file("deploy/grafana-dashboard.json")) as {
  readonly panels: ReadonlyArray<{
    readonly targets?: ReadonlyArray<{ readonly expr: string; readonly legendFormat?: string }>
  }>
}
const dashboardQueries = dashboard.panels.flatMap(({ targets = [] }) => targets)
const { groups } = Yaml.parse(file("deploy/alerts.yaml")) as {
  readonly groups: ReadonlyArray<{
    readonly rules: ReadonlyArray<{
      readonly alert: string
      readonly expr: string
      readonly labels: { readonly severity: string }
      readonly annotations: Readonly<Record<string, string>>
    }>
  }>
}
const alerts = groups.flatMap(({ rules }) => rules)

/** The labels that Prometheus adds, by the example that runs the service. */
const targets = () => {
  const { scrape_configs } = Yaml.parse(file("deploy/prometheus.yaml")) as {
    readonly scrape_configs: ReadonlyArray<ScrapeConfig>
  }
  // oxlint-disable-next-line typescript/no-explicit-any -- another project's schema
  const { spec } = Yaml.parse(file("deploy/kubernetes.yaml").split(/^---$/m)[0]!) as any
  const { metadata, spec: pod } = spec.template
  const pods = ["gatehouse-a", "gatehouse-b", "postgres"].map((name, n) => ({
    __address__: `10.0.0.${n}:3000`,
    __meta_kubernetes_pod_name: name,
    __meta_kubernetes_pod_label_app_kubernetes_io_name:
      name === "postgres" ? name : metadata.labels["app.kubernetes.io/name"],
    __meta_kubernetes_pod_container_port_name: pod.containers[0].ports[0].name,
  }))
  const [compose, kubernetes] = scrape_configs
  return { "compose.yaml": targetLabels(compose!, []), "kubernetes.yaml": targetLabels(kubernetes!, pods) }
}

const read = Effect.gen(function* () {
  const { send } = yield* TestServer
  const { text } = yield* send("GET", "/metrics")
  const families = parse(text)
  const samples = families.flatMap((family) => family.samples)
  const value = (name: string, labels: Readonly<Record<string, string>> = {}) =>
    samples
      .filter((one) => one.name === name && Object.entries(labels).every(([key, is]) => one.labels[key] === is))
      .reduce((sum, one) => sum + one.value, 0)
  return { text, families, samples, value }
})
type Scrape = Effect.Success<typeof read>

/** Reads the metrics some seconds later, because the server keeps counts of the database for so long. */
const scrape = Effect.gen(function* () {
  yield* (yield* TestServer).advance("6 seconds")
  return yield* read
})

/** Scrapes until the condition holds: an attempt is recorded a little after its receiver gets it. */
const until = (expected: (scrape: Scrape) => boolean) =>
  eventually(
    "the metrics",
    Effect.filterOrFail(scrape, expected, ({ text }) => text),
  )

const requests = "http_request_duration_seconds_count"
const validations = "gatehouse_key_validations_total"
const deliveries = "gatehouse_deliveries_total"
const attempts = "gatehouse_delivery_attempt_duration_seconds_count"

layer(TestServer.layer(onPostgres({ WEBHOOK_RETRY_DELAYS: "100ms" })), { excludeTestServices: true })(
  "metrics",
  (it) => {
    it.effect("requests: are counted by method, route and status, and clients cannot create series", function* () {
      const { send } = yield* TestServer
      const before = yield* scrape
      for (let n = 0; n < 20; n++) {
        yield* send("GET", `/nothing/${n}`)
        yield* send("GET", `/api/v0/projects/${n}`)
        yield* send("PURGE", `/api/v0/projects/${n}`)
        yield* send("PURGE", `/nothing/${n}`)
      }
      const after = yield* scrape
      const labels = { route: "/api/v0/projects/{projectId}", method: "GET", status: "404" }
      expect(after.value(requests, labels) - before.value(requests, labels)).toBe(20)
      const unmatched = { route: "unmatched", status: "404" }
      expect(after.value(requests, { ...unmatched, method: "GET" })).toBe(20)
      expect(after.value(requests, { ...unmatched, method: "other" })).toBe(20)
      expect(after.value(requests, { ...unmatched, method: "other", status: "405" })).toBe(20)
      const series = ({ samples }: Scrape) => samples.filter(({ name }) => name === requests).length
      // Those four, and that of the first scrape.
      expect(series(after) - series(before)).toBe(5)
    })

    // Seen failing: each was a 503, which the alert about 5xx counted.
    it.effect("requests: one whose client goes away is a 499", function* () {
      const { routed, url } = yield* TestServer
      const { headers } = yield* makeTenant()
      const before = routed()
      const claim = yield* Effect.tryPromise((signal) =>
        globalThis.fetch(`${url}/v1/jobs/claim`, {
          method: "POST",
          headers: { ...headers, "content-type": "application/json" },
          body: JSON.stringify({ workflow: "nothing waits", wait_seconds: 20 }),
          signal,
        }),
      ).pipe(Effect.forkChild)
      const isRouted = Effect.suspend(() => (routed() > before ? Effect.void : Effect.fail("not yet")))
      yield* eventually("the claim at the router", isRouted)
      yield* Fiber.interrupt(claim)
      const route = { route: "/v1/jobs/claim", method: "POST" }
      const after = yield* until(({ value }) => value(requests, route) > 0)
      expect([after.value(requests, { ...route, status: "499" }), after.value(requests, route)]).toEqual([1, 1])
    })

    it.effect(
      "validations: are counted by outcome and source, with the same series from the hot path and the router",
      function* () {
        const { send, routed } = yield* TestServer
        const { key } = yield* makeTenant()
        const validate = (key: string, as?: string) =>
          send("POST", "/api/v0/keys/validate", { json: { key }, as, headers: { connection: "keep-alive" } })
        const before = yield* scrape
        const routedBefore = routed()
        yield* validate(key, key)
        expect(routed()).toBe(routedBefore)
        let valid = 1
        // After a step of the clock, memory answers from the next proof on that it is current.
        const fromMemory = Effect.gen(function* () {
          yield* validate(key)
          valid++
          const labels = { outcome: "valid", source: "memory" }
          const now = yield* read
          if (now.value(validations, labels) === before.value(validations, labels)) return yield* Effect.fail("not yet")
        })
        yield* eventually("a validation from memory", fromMemory)
        yield* validate("svc_none")
        yield* validate(key.slice(0, -1) + (key.endsWith("a") ? "b" : "a"))
        const after = yield* scrape
        const more = (name: string, labels: Readonly<Record<string, string>>) =>
          after.value(name, labels) - before.value(name, labels)
        expect(more(validations, { outcome: "valid" })).toBe(valid)
        expect(more(validations, { outcome: "invalid" })).toBe(2)
        const validated = { route: "/api/v0/keys/validate", method: "POST" }
        expect(more(requests, { ...validated, status: "200" })).toBe(valid)
        expect(more(requests, { ...validated, status: "401" })).toBe(2)
      },
    )

    it.effect("sweeps: their rows are counted by what they do, and those that have done nothing are 0", function* () {
      const { ask, call } = yield* makeTenant()
      const rows = (kind: string) => Effect.map(scrape, ({ value }) => value("gatehouse_swept_rows_total", { kind }))
      const { families } = yield* scrape
      const kinds = families.find(({ name }) => name === "gatehouse_swept_rows_total")!.samples.map((one) => one.labels)
      expect(kinds).toContainEqual({ kind: "move" })
      const before = yield* rows("cancelJobs")
      for (let n = 0; n < 3; n++) yield* call("jobs/create", { workflow: "swept" })
      expect((yield* ask("jobs/cancel", { filter: { workflow: "swept" } })).status).toBe(200)
      yield* eventually(
        "the rows of the sweep",
        Effect.filterOrFail(rows("cancelJobs"), (now) => now === before + 3, String),
      )
    })

    it.effect(
      "deliveries: are counted by outcome, attempts by result, and the log names those that ended without success",
      function* () {
        const { logs } = yield* TestServer
        const { endpoint, finished, orgId } = yield* makeTenant()
        const [good, bad, gone] = [yield* makeReceiver(), yield* makeReceiver(), yield* makeReceiver()]
        bad.behave({ status: 500 })
        gone.behave({ status: 410 })
        for (const { url } of [good, bad, gone]) yield* endpoint(url)
        const before = yield* scrape
        yield* finished()
        const after = yield* until((now) => now.value(deliveries) - before.value(deliveries) === 4)
        for (const outcome of ["delivered", "retried", "failed", "deactivated"]) {
          expect(after.value(deliveries, { outcome }) - before.value(deliveries, { outcome }), outcome).toBe(1)
        }
        for (const [result, times] of Object.entries({ "2xx": 1, "5xx": 2, "4xx": 1 })) {
          expect(after.value(attempts, { result }) - before.value(attempts, { result }), result).toBe(times)
        }
        const lines = logs()
          .split("\n")
          .filter((line) => line.includes("A delivery failed"))
        expect(lines).toHaveLength(2)
        for (const line of lines) {
          const { annotations } = JSON.parse(line) as { readonly annotations: Readonly<Record<string, unknown>> }
          expect(annotations).toMatchObject({ orgId, deliveryId: expect.any(String) as string })
        }
      },
    )

    // Seen failing: the text format of Prometheus was the only one.
    it.effect("speaks OpenMetrics to who accepts it, with the trace of a request in its bucket", function* () {
      const { send, spans } = yield* TestServer
      yield* send("GET", "/healthz")
      const accept = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
      const { headers, text } = yield* send("GET", "/metrics", { headers: { accept } })
      expect(headers["content-type"]).toBe("application/openmetrics-text; version=1.0.0; charset=utf-8")
      expect(text.endsWith("\n# EOF\n")).toBe(true)
      // Seen failing: the type alone decided, and later any weight but 0.
      for (const accept of ["application/openmetrics-text; q=0", "text/plain, application/openmetrics-text;q=0.5"]) {
        const other = yield* send("GET", "/metrics", { headers: { accept } })
        expect(other.headers["content-type"], accept).toContain("text/plain")
      }
      expect(text).not.toMatch(/^# TYPE \w+_total /m)
      expect(text).toMatch(/^# TYPE process_cpu_seconds counter\n(?:# .*\n)*process_cpu_seconds_total /m)
      const [, traceId, seconds] =
        /_bucket\{method="GET",route="\/healthz",status="200",le="[^"]+"\} \d+ # \{trace_id="(\w+)"\} ([\d.e-]+) [\d.]+$/m.exec(
          text,
        ) ?? []
      expect(traceId, text).toMatch(/^[0-9a-f]{32}$/)
      expect(spans()).toContain("/healthz")
      expect(Number(seconds)).toBeGreaterThan(0)
      // Without the marks and exemplars, it is the other format.
      const plain = text.replace(/ # \{trace_id.*$/gm, "").replace("# EOF\n", "")
      const families = parse(
        plain.replace(
          /^(# (?:HELP|TYPE)) (process_cpu_seconds|gatehouse_(?:deliveries|key_validations|limits_reached|swept_rows)) /gm,
          "$1 $2_total ",
        ),
      )
      expect(conventionFaults(families)).toEqual([])
    })

    it.effect("backlog: counts due deliveries that are not claimed, and the age of the oldest", function* () {
      const { advance } = yield* TestServer
      const { endpoint, finished } = yield* makeTenant()
      const receiver = yield* makeReceiver()
      receiver.behave("hang")
      yield* endpoint(receiver.url)
      for (let n = 0; n < 12; n++) yield* finished()
      yield* receiver.arrived(10)
      expect((yield* scrape).value("gatehouse_deliveries_due")).toBeLessThan(12)
      // The leases of the claimed deliveries end, and the receiver still hangs.
      yield* advance("60 seconds")
      const { value } = yield* until((now) => now.value("gatehouse_deliveries_due") === 12)
      expect(value("gatehouse_deliveries_oldest_due_seconds")).toBeGreaterThan(5)
    })

    it.effect("all metrics follow Prometheus' conventions", function* () {
      const { text, families } = yield* scrape
      expect(conventionFaults(families)).toEqual([])
      const promtool = spawnSync("promtool", ["check", "metrics"], { input: text, encoding: "utf8" })
      if (promtool.error === undefined) expect(promtool.stdout + promtool.stderr).toBe("")
    })

    it.effect("the documents name every metric with its type and labels, and no other", function* () {
      const { families } = yield* scrape
      const documented = rows(/^`[a-z]\w+`$/).map((cells) => cells.slice(0, 3).map((cell) => cell.replaceAll("`", "")))
      const labelsOf = ([first]: ReadonlyArray<Sample>) => Object.keys(first!.labels).filter((name) => name !== "le")
      const given = families.map(({ name, type, samples }) => [name, type, labelsOf(samples).join(", ")])
      expect(documented.toSorted()).toEqual(given.toSorted())
      const valuesOf = (labels: Sample["labels"]) => ["kind", "outcome", "source"].flatMap((name) => labels[name] ?? [])
      const missing = families.flatMap(({ name, samples }) => {
        const meaning = rows(/^`[a-z]\w+`$/).find(([cell]) => cell === `\`${name}\``)![3]!
        const values = new Set(samples.flatMap(({ labels }) => valuesOf(labels)))
        return [...values].filter((value) => !meaning.includes(`\`${value}\``)).map((value) => `${name} ${value}`)
      })
      expect(missing).toEqual([])
    })

    it.effect("the documentation names every alert with its severity, and promtool accepts the rules", () =>
      Effect.sync(() => {
        const documented = rows(/^`Gatehouse\w+`$/).map(([name, severity]) => [name!.replaceAll("`", ""), severity])
        expect(documented.toSorted()).toEqual(alerts.map(({ alert, labels }) => [alert, labels.severity]).toSorted())
        const rules = fileURLToPath(new URL("../../../deploy/alerts.yaml", import.meta.url))
        const promtool = spawnSync("promtool", ["check", "rules", rules], { encoding: "utf8" })
        if (promtool.error === undefined) expect(promtool.status, promtool.stdout + promtool.stderr).toBe(0)
      }),
    )

    it.effect.each(Object.entries(targets()))(
      "the dashboard and the alerts select what Prometheus reads from the replicas of %s",
      function* ([, replicas]) {
        const { samples: own } = yield* scrape
        // `up` is made by Prometheus itself.
        const samples = replicas.flatMap((labels) =>
          [...own, { name: "up", labels: {}, value: 1 }].map((sample) => ({
            ...sample,
            labels: { ...sample.labels, ...labels },
          })),
        )
        const added = new Set(["job", ...Object.keys(replicas[0]!)])
        /** What a text queries, or writes with `{{ }}`, and no sample has. */
        const missing = (query: string, texts: string, there: (selector: Selector, sample: Sample) => boolean) => {
          const { selectors, groupedBy } = selectorsOf(query)
          expect(selectors, query).not.toEqual([])
          const written = [...texts.matchAll(/\{\{ ?(?:\$labels\.)?(\w+)/g)].map(([, label]) => label!)
          const aggregates = /\b(sum|max|min|avg|count|absent)\b/.test(query)
          const lost = written.filter((label) => aggregates && !groupedBy.includes(label))
          const has = (label: string) =>
            label === "le" ||
            selectors.some(({ name }) =>
              samples.some((sample) => sample.name === name && Object.hasOwn(sample.labels, label)),
            )
          return [
            ...selectors
              .filter((selector) => !samples.some((sample) => there(selector, sample)))
              .map(({ name }) => name),
            ...[...groupedBy, ...written].filter((label) => !has(label)),
            ...lost.map((label) => `${label} in ${texts}`),
          ]
        }
        // The choices of the dashboard's variable.
        const jobs = [...new Set(samples.filter(({ name }) => name === validations).map(({ labels }) => labels["job"]))]
        expect(jobs).toEqual(["gatehouse"])
        expect(dashboardQueries.length).toBeGreaterThan(20)
        const faults = dashboardQueries.flatMap(({ expr, legendFormat = "" }) =>
          missing(expr.replaceAll("$job", jobs[0]!), legendFormat, selects),
        )
        expect(faults).toEqual([])
        // Series of a rule exist only with data, but their labels are documented. Those of the target exist always.
        const known = ({ matchers, name }: Selector, sample: Sample) =>
          selects({ name, matchers: matchers.filter(({ label }) => added.has(label)) }, sample) &&
          matchers.every(({ label }) => Object.hasOwn(sample.labels, label))
        expect(alerts.length).toBeGreaterThan(10)
        expect(alerts.flatMap(({ annotations, expr }) => missing(expr, JSON.stringify(annotations), known))).toEqual([])
        // Another service's series are none of ours.
        const ofAnyJob = alerts.filter(
          ({ expr }) =>
            !selectorsOf(expr).selectors.every(({ matchers }) => matchers.some(({ label }) => label === "job")),
        )
        expect(ofAnyJob).toEqual([])
      },
    )
  },
)
