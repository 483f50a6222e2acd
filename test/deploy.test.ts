import { describe, expect, it } from "@effect/vitest"
import * as Yaml from "effect/encoding/Yaml"
import { existsSync, readFileSync } from "node:fs"
import { BlockList } from "node:net"

const read = (path: string) => readFileSync(new URL(`../${path}`, import.meta.url), "utf8")

/** Every environment variable that the service knows. */
const variables = [...read("src/boot/config.ts").matchAll(/\bread\("([A-Z_]+)"/g)].map(([, name]) => name!)

interface Manifest {
  readonly kind: string
  readonly spec: any // oxlint-disable-line typescript/no-explicit-any -- another project's schema
}

it("config.ts names its variables where these tests find them", () => {
  expect(variables).toEqual(expect.arrayContaining(["PORT", "DATABASE_URL", "ADMIN_TOKEN", "ENCRYPTION_KEY"]))
})

describe("the Dockerfile", () => {
  const dockerfile = read("Dockerfile")
  const final = dockerfile.slice(dockerfile.lastIndexOf("\nFROM "))

  it("sets existing variables, and runs as a user that is not root", () => {
    const names = [.../^ENV (.*)$/m.exec(final)![1]!.matchAll(/(\w+)=/g)].map(([, name]) => name!)
    expect(names.filter((name) => !variables.includes(name))).toEqual(["NODE_ENV"])
    expect(final).toMatch(/^USER 1000:1000$/m)
    expect(final).toMatch(/^HEALTHCHECK .* CMD \["node", /m)
  })

  it("copies existing files that .dockerignore does not exclude", () => {
    const ignored = read(".dockerignore").split("\n")
    const copied = [...dockerfile.matchAll(/^COPY (?!--)(.*) \S+$/gm)].flatMap(([, files]) => files!.split(" "))
    expect(copied).toContain("package-lock.json")
    for (const file of copied) {
      expect(existsSync(new URL(`../${file}`, import.meta.url)), file).toBe(true)
      expect(ignored).toContain(`!${file}`)
    }
  })

  it("uses the Node version that the scripts pin", () => {
    const { devDependencies } = JSON.parse(read("package.json")) as { devDependencies: Record<string, string> }
    const major = devDependencies["node"]!.split(".")[0]
    expect([...dockerfile.matchAll(/^FROM node:(\d+)-slim/gm)].map(([, version]) => version)).toEqual([
      major,
      major,
      major,
    ])
  })
})

it("compose.yaml sets variables that the service knows, and requires its secrets", () => {
  const text = read("deploy/compose.yaml")
  const { services } = Yaml.parse(text) as {
    services: Record<string, { environment: Record<string, string>; build?: string; mem_limit?: string }>
  }
  expect(Object.keys(services)).toEqual(["postgres", "gatehouse"])
  const { environment } = services["gatehouse"]!
  expect(Object.keys(environment).filter((name) => !variables.includes(name))).toEqual([])
  for (const name of ["ADMIN_TOKEN", "ENCRYPTION_KEY", "BASE_URL"]) expect(environment[name]).toMatch(`\${${name}:?`)
  expect(services["postgres"]!.environment["POSTGRES_PASSWORD"]).toMatch("${POSTGRES_PASSWORD:?")
  for (const { mem_limit } of Object.values(services)) expect(mem_limit).toMatch(/^\d+[mg]$/)
  // Any other dollar sign would be read as a variable.
  expect(text.match(/\$(?!\{[A-Z_]+(:[?-][^$}]*)?\})/g)).toBeNull()
})

describe("kubernetes.yaml", () => {
  const text = read("deploy/kubernetes.yaml")
  const manifests = text.split(/^---$/m).map((part) => Yaml.parse(part) as Manifest)
  const of = (kind: string) => manifests.find((manifest) => manifest.kind === kind)!.spec
  const pod = of("Deployment").template
  const [container] = pod.spec.containers

  it("has two replicas, one of which always stays, and a service that selects them", () => {
    expect(manifests.map(({ kind }) => kind)).toEqual(["Deployment", "PodDisruptionBudget", "NetworkPolicy", "Service"])
    expect([of("Deployment").replicas, of("PodDisruptionBudget").minAvailable]).toEqual([2, 1])
    const { labels } = pod.metadata
    expect(of("Deployment").selector.matchLabels).toEqual(labels)
    expect(of("PodDisruptionBudget").selector.matchLabels).toEqual(labels)
    expect(of("Service").selector).toEqual(labels)
    expect(of("Service").ports[0].targetPort).toBe(container.ports[0].name)
  })

  it("has enough memory for the measured use, and a limit", () => {
    const { requests, limits } = container.resources
    expect(parseInt(requests.memory)).toBeGreaterThanOrEqual(380)
    expect(parseInt(limits.memory)).toBeGreaterThan(parseInt(requests.memory))
  })

  it("accepts requests at its port, and connects only to public addresses, DNS and PostgreSQL", () => {
    const { podSelector, policyTypes, ingress, egress } = of("NetworkPolicy")
    expect(podSelector.matchLabels).toEqual(pod.metadata.labels)
    expect(policyTypes).toEqual(["Ingress", "Egress"])
    expect(ingress).toEqual([{ ports: [{ port: container.ports[0].name }] }])
    const [dns, database, addresses] = egress
    expect([...dns.ports, ...database.ports].map(({ port }: { readonly port: number }) => port)).toEqual([53, 53, 5432])
    const blocks: ReadonlyArray<{
      readonly ipBlock: { readonly cidr: string; readonly except: ReadonlyArray<string> }
    }> = addresses.to
    expect(blocks.map(({ ipBlock }) => ipBlock.cidr)).toEqual(["0.0.0.0/0", "::/0"])
    const refused = new BlockList()
    for (const net of blocks.flatMap(({ ipBlock }) => ipBlock.except)) {
      const [address, bits] = net.split("/")
      refused.addSubnet(address!, Number(bits), address!.includes(":") ? "ipv6" : "ipv4")
    }
    for (const address of ["10.1.2.3", "172.31.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "127.0.0.1"]) {
      expect(refused.check(address), address).toBe(true)
    }
    for (const address of ["::1", "fd00::1", "fe80::1"]) expect(refused.check(address, "ipv6"), address).toBe(true)
    expect([refused.check("140.82.112.3"), refused.check("2606:50c0::1", "ipv6")]).toEqual([false, false])
  })

  it("probes paths that the service answers, and sets variables that it knows", () => {
    const probes = ["startupProbe", "livenessProbe", "readinessProbe"].map((probe) => container[probe].httpGet.path)
    expect(probes).toEqual(["/healthz", "/healthz", "/readyz"])
    const given = container.env.map(({ name }: { readonly name: string }) => name)
    const secret = [...text.matchAll(/--from-literal=([A-Z_]+)=/g)].map(([, name]) => name!)
    expect([...given, ...secret].filter((name) => !variables.includes(name))).toEqual([])
    expect(secret).toEqual(["DATABASE_URL", "ADMIN_TOKEN", "METRICS_TOKEN", "ENCRYPTION_KEY"])
  })

  it("runs as a user that is not root and cannot write", () => {
    expect(pod.spec.securityContext).toMatchObject({ runAsNonRoot: true, runAsUser: 1000 })
    expect(container.securityContext).toMatchObject({ readOnlyRootFilesystem: true, allowPrivilegeEscalation: false })
    const { preStop } = container.lifecycle
    expect(pod.spec.terminationGracePeriodSeconds).toBeGreaterThanOrEqual(preStop.sleep.seconds + 30)
  })
})

it("prometheus.yaml sends METRICS_TOKEN to each replica of compose.yaml and of kubernetes.yaml", () => {
  interface Job {
    readonly job_name: string
    readonly authorization: { readonly type?: string; readonly credentials_file: string }
    readonly static_configs?: ReadonlyArray<{ readonly targets: ReadonlyArray<string> }>
    readonly relabel_configs?: ReadonlyArray<{ readonly source_labels: ReadonlyArray<string>; readonly regex?: string }>
  }
  const { scrape_configs } = Yaml.parse(read("deploy/prometheus.yaml")) as { scrape_configs: ReadonlyArray<Job> }
  const [compose, kubernetes] = scrape_configs as [Job, Job]
  for (const { authorization } of scrape_configs) {
    // Without a type it is Bearer. A token in the file itself would be visible to every reader.
    expect(Object.keys(authorization)).toEqual(["credentials_file"])
  }
  const { services } = Yaml.parse(read("deploy/compose.yaml")) as {
    services: Record<string, { ports?: ReadonlyArray<string>; environment: Record<string, string> }>
  }
  const target = compose.static_configs![0]!.targets[0]!
  const [host, port] = target.split(":")
  expect(services[host!]!.ports![0]).toMatch(new RegExp(`:${port}$`))
  expect(services[host!]!.environment["METRICS_TOKEN"]).toBe("${METRICS_TOKEN:-}")
  const deployment = Yaml.parse(read("deploy/kubernetes.yaml").split(/^---$/m)[0]!) as Manifest
  const { metadata, spec } = deployment.spec.template
  const [kept] = kubernetes.relabel_configs!
  expect(kept!.source_labels).toEqual([
    "__meta_kubernetes_pod_label_app_kubernetes_io_name",
    "__meta_kubernetes_pod_container_port_name",
  ])
  expect(kept!.regex).toBe(`${metadata.labels["app.kubernetes.io/name"]};${spec.containers[0].ports[0].name}`)
})
