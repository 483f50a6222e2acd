import { describe, expect } from "@effect/vitest"
import { Effect } from "effect"
import * as Yaml from "effect/encoding/Yaml"
import { spawnSync } from "node:child_process"
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { BlockList } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { variables as ofService } from "#src/boot/variables.ts"
import { must } from "./http/operations.ts"
import { makeTenant } from "./http/tenants.ts"
import { run } from "./support/cli.ts"
import { freshFolder } from "./support/databases.ts"
import { it, layer } from "./support/it.ts"
import { adminToken, guarded, onPostgres, TestServer } from "./support/server.ts"

/**
 * Promise (Metrics and traces): The rules and the dashboard of `deploy` use names and labels that their examples
 * scrape.
 */

const read = (path: string) => readFileSync(new URL(`../${path}`, import.meta.url), "utf8")

/** Every environment variable that the service knows. */
const variables = Object.keys(ofService)

interface Manifest {
  readonly kind: string
  readonly spec: any // oxlint-disable-line typescript/no-explicit-any -- another project's schema
}

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
    expect(dockerfile).toContain(`ARG NODE_IMAGE=node:${major}-slim\n`)
    expect(dockerfile.match(/^FROM (\S+)/gm)).toEqual(["FROM $NODE_IMAGE", "FROM $NODE_IMAGE", "FROM $NODE_IMAGE"])
  })
})

it("compose.yaml passes every variable on, but those that the image sets, and requires its secrets", () => {
  const text = read("deploy/compose.yaml")
  const { services } = Yaml.parse(text) as {
    services: Record<string, { environment: Record<string, string>; build?: string; mem_limit?: string }>
  }
  expect(Object.keys(services)).toEqual(["postgres", "gatehouse", "backup"])
  const { environment } = services["gatehouse"]!
  expect([...Object.keys(environment), "PORT", "HOST", "DATA_DIR"].toSorted()).toEqual(variables.toSorted())
  const { DATABASE_URL: _, ...passed } = environment
  for (const [name, value] of Object.entries(passed)) expect(value).toMatch(`\${${name}:`)
  for (const name of ["ADMIN_TOKEN", "ENCRYPTION_KEY", "BASE_URL"]) expect(environment[name]).toMatch(`\${${name}:?`)
  expect(services["postgres"]!.environment["POSTGRES_PASSWORD"]).toMatch("${POSTGRES_PASSWORD:?")
  for (const { mem_limit } of Object.values(services)) expect(mem_limit).toMatch(/^\d+[mg]$/)
  // Any other dollar sign would be read as a variable.
  expect(text.match(/\$(?!\{[A-Z_]+(:[?-][^$}]*)?\})/g)).toBeNull()
})

/** Runs a script where each named program is one of these scripts, and no other is found first. */
const among = (programs: Readonly<Record<string, string>>, script: string, env: Readonly<Record<string, string>>) => {
  const folder = mkdtempSync(join(tmpdir(), "gatehouse-deploy-"))
  try {
    for (const [name, text] of Object.entries(programs)) {
      writeFileSync(join(folder, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 })
    }
    const path = `${folder}:${process.env["PATH"]}`
    return spawnSync("bash", ["--norc", "-euo", "pipefail", "-c", script], {
      encoding: "utf8",
      env: { ...env, PATH: path },
    })
  } finally {
    rmSync(folder, { recursive: true })
  }
}

// test/faults/backup.test.ts restores what it makes.
it("backup.sh keeps the newest dumps, and a dump that fails removes none", () => {
  const script = fileURLToPath(new URL("../deploy/backup.sh", import.meta.url))
  const folder = mkdtempSync(join(tmpdir(), "gatehouse-backups-"))
  try {
    const old = ["gatehouse-20200101T000000Z.dump", "gatehouse-20200102T000000Z.dump"]
    for (const name of [...old, "another.dump"]) writeFileSync(join(folder, name), "")
    const run = (pg_dump: string) => among({ pg_dump }, `"${script}" once`, { BACKUP_DIR: folder, BACKUP_KEEP: "2" })
    const failed = run("touch unfinished; exit 1")
    expect([failed.status, failed.stdout]).toEqual([1, ""])
    expect(readdirSync(folder).toSorted()).toEqual(["another.dump", ...old])
    const made = run("touch unfinished")
    expect([made.status, made.stderr]).toEqual([0, ""])
    expect(readdirSync(folder).toSorted()).toEqual(["another.dump", old[1], made.stdout.trim()])
  } finally {
    rmSync(folder, { recursive: true })
  }
})

describe("publish.yaml", () => {
  interface Job {
    readonly permissions: Readonly<Record<string, string>>
    readonly steps: ReadonlyArray<{
      readonly name?: string
      readonly uses?: string
      readonly run?: string
      readonly env?: Readonly<Record<string, string>>
    }>
  }
  const text = read(".github/workflows/publish.yaml")
  const { jobs, permissions } = Yaml.parse(text) as {
    readonly jobs: Readonly<Record<"packages" | "image" | "chart" | "sbom", Job>>
    readonly permissions: object
  }
  const stepsOf = ({ steps }: Job) => steps.flatMap(({ run }) => run ?? [])
  const manifests = [
    "package.json",
    ...readdirSync(new URL("../packages", import.meta.url)).map((name) => `packages/${name}/package.json`),
  ].filter((path) => existsSync(new URL(`../${path}`, import.meta.url)))

  it("has the rights and the secret that it needs, and no others", () => {
    expect(permissions).toEqual({})
    expect(jobs.packages.permissions).toEqual({ contents: "read", "id-token": "write" })
    expect(jobs.image.permissions).toEqual({ contents: "read", packages: "write" })
    expect(jobs.chart.permissions).toEqual({ contents: "read", packages: "write" })
    expect(jobs.sbom.permissions).toEqual({ contents: "write" })
    expect([...text.matchAll(/secrets\.(\w+)/g)].map(([, name]) => name)).toEqual(["NPM_TOKEN"])
    for (const { run = "", uses = "" } of Object.values(jobs).flatMap(({ steps }) => steps)) {
      // A version is a name that its owner can move.
      expect(uses).toMatch(/^(actions\/[\w-]+@[0-9a-f]{40})?$/)
      // What the release says reaches a shell by a variable only.
      expect(run).not.toContain("${{")
    }
  })

  it("publishes each package, of the version of the tag alone, with its provenance", () => {
    const [compare, install, name, pack, publish] = stepsOf(jobs.packages)
    const { version } = JSON.parse(read("package.json")) as { readonly version: string }
    const compared = (TAG: string) => {
      const root = fileURLToPath(new URL("../", import.meta.url))
      return spawnSync("bash", ["-e", "-c", compare!], { encoding: "utf8", cwd: root, env: { ...process.env, TAG } })
    }
    expect([compared(`v${version}`).status, compared("v99.0.0").status]).toEqual([0, 1])
    expect(manifests).toHaveLength(5)
    for (const path of manifests) {
      const { files, name, private: isPrivate } = JSON.parse(read(path)) as Readonly<Record<string, unknown>>
      expect([isPrivate, typeof name, Array.isArray(files)], path).toEqual([undefined, "string", true])
    }
    const npm = `echo "$@"`
    expect(among({ npm }, name!, { GITHUB_REPOSITORY: "acme/gatehouse" }).stdout).toContain(
      "repository.url=git+https://github.com/acme/gatehouse.git --workspaces\n",
    )
    const packing = `${npm}; [ "$1" != pack ] || touch packed/$#.tgz`
    const script = `cd "$(mktemp -d)"; ${pack}\n${publish}`
    const { stdout } = among({ npm: packing }, script, { CHANNEL: "next", NODE_AUTH_TOKEN: "token" })
    // `npm publish` in the folder runs scripts of dependencies beside the token.
    const flags = "publish --ignore-scripts --provenance --access public --tag next"
    expect(stdout.split("\n").slice(-3)).toEqual([`${flags} ./packed/4.tgz`, `${flags} ./packed/5.tgz`, ""])
    expect(stdout.match(/^pack .*$/gm)).toEqual(Array(2).fill(expect.stringContaining("pack --ignore-scripts ")))
    expect(install).toBe("npm ci --ignore-scripts")
  })

  it("publishes the chart under the version of the tag, and adds the bill of materials to the release", () => {
    const helm = `[ "$1" != registry ] || cat > /dev/null; [ "$1" != package ] || touch packed/gatehouse-1.2.3.tgz; echo helm "$@"`
    const script = `cd "$(mktemp -d)"; mkdir packed; ${stepsOf(jobs.chart)[0]}`
    const pushed = among({ helm }, script, {
      GITHUB_REPOSITORY_OWNER: "Acme",
      GITHUB_ACTOR: "ann",
      TOKEN: "t",
      TAG: "v1.2.3",
    })
    expect(pushed.stdout.trim().split("\n").slice(-2)).toEqual([
      "helm package deploy/helm/gatehouse --version 1.2.3 --app-version 1.2.3 --destination packed",
      "helm push packed/gatehouse-1.2.3.tgz oci://ghcr.io/acme/charts",
    ])
    const upload = `cd "$(mktemp -d)"; ${stepsOf(jobs.sbom)[0]}`
    const uploaded = among({ npm: "echo {}", gh: `echo "$@"` }, upload, { TAG: "v1.2.3", GH_TOKEN: "t" })
    expect(uploaded.stdout).toBe("release upload v1.2.3 gatehouse.cdx.json\n")
  })

  it("publishes the image with its provenance, under its version", () => {
    const docker = `[ "$1" != login ] || cat > /dev/null; case "$*" in *imagetools*) echo sha256:12ab;; *) echo "$@";; esac`
    const { status, stdout } = among({ docker }, stepsOf(jobs.image)[0]!, {
      GITHUB_REPOSITORY: "Acme/Gatehouse",
      GITHUB_ACTOR: "ann",
      TOKEN: "token",
      TAG: "v1.2.3",
      CHANNEL: "latest",
    })
    expect(status).toBe(0)
    expect(stdout).not.toMatch(/ token/)
    const image = "ghcr.io/acme/gatehouse"
    expect(stdout).toContain("--build-arg NODE_IMAGE=node:24-slim@sha256:12ab ")
    expect(stdout).toContain(`--provenance mode=max --sbom true --push --tag ${image}:1.2.3 --tag ${image}:latest .`)
  })
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

describe("the Helm chart", () => {
  const folder = fileURLToPath(new URL("../deploy/helm/gatehouse", import.meta.url))
  const baseUrl = ["--set", "env.BASE_URL=https://gatehouse.example.com"]
  const helm = (...args: ReadonlyArray<string>) => spawnSync("helm", args, { encoding: "utf8" })
  // A helm that was built from its source takes the cluster for an old one.
  const template = (...args: ReadonlyArray<string>) =>
    helm("template", "gatehouse", folder, "--kube-version", "1.31.0", ...args)
  const hasHelm = helm("version").status === 0
  if (!hasHelm) process.stdout.write("the Helm chart is not rendered: there is no helm\n")
  const rendered = (...args: ReadonlyArray<string>) => {
    const { status, stderr, stdout } = template(...baseUrl, ...args)
    expect(status, stderr).toBe(0)
    return stdout
      .split(/^---$/m)
      .map((part) => Yaml.parse(part) as Manifest | null)
      .filter((one) => one !== null)
  }

  it("has the version of the service, and sets variables that it knows, none of them secret", () => {
    const { version } = JSON.parse(read("package.json")) as { readonly version: string }
    const chart = Yaml.parse(read("deploy/helm/gatehouse/Chart.yaml")) as Readonly<Record<string, string>>
    expect([chart["version"], chart["appVersion"]]).toEqual([version, version])
    const values = read("deploy/helm/gatehouse/values.yaml")
    const { env } = Yaml.parse(values) as { readonly env: Readonly<Record<string, string>> }
    const secret = [...values.matchAll(/--from-literal=([A-Z_]+)=/g)].map(([, name]) => name!)
    expect(secret).toEqual(["DATABASE_URL", "ADMIN_TOKEN", "METRICS_TOKEN", "ENCRYPTION_KEY"])
    expect([...Object.keys(env), ...secret].filter((name) => !variables.includes(name))).toEqual([])
    expect(Object.keys(env).filter((name) => secret.includes(name))).toEqual([])
  })

  it("has its metrics under the job that the alerts name, whatever the release is called", () => {
    const jobs = new Set([...read("deploy/alerts.yaml").matchAll(/job="([^"]*)"/g)].map(([, job]) => job))
    // Seen failing: without jobLabel the job is the name of the Service, which is that of the release.
    const [, label] = /^ {2}jobLabel: (.+)$/m.exec(read("deploy/helm/gatehouse/templates/operations.yaml"))!
    const labels = read("deploy/helm/gatehouse/templates/_helpers.tpl").match(
      /(?<=labels" -}}\n)[^]*?(?=\n{{- end }})/,
    )!
    expect([...jobs]).toEqual([
      labels[0]
        .split("\n")
        .find((line) => line.startsWith(`${label}: `))!
        .split(": ")[1],
    ])
  })

  it.skipIf(!hasHelm)("makes what kubernetes.yaml says, and what is switched on beside it", () => {
    const lint = helm("lint", "--strict", folder, ...baseUrl)
    expect(lint.status, lint.stdout).toBe(0)
    const plain = read("deploy/kubernetes.yaml")
      .split(/^---$/m)
      .map((part) => Yaml.parse(part) as Manifest)
    const made = rendered("--set", "env.OIDC_ALLOWED_OWNERS=acme", "--set", "migration.enabled=false")
    expect(made.map(({ kind }) => kind).toSorted()).toEqual(plain.map(({ kind }) => kind).toSorted())
    /** Without the label of the release, and the order of variables. */
    const comparable = (one: Manifest) =>
      JSON.stringify(one.spec)
        .replaceAll(',"app.kubernetes.io/instance":"gatehouse"', "")
        .replace('"imagePullPolicy":"IfNotPresent",', "")
        .replace('"type":"ClusterIP",', "")
    for (const one of plain) {
      const other = made.find(({ kind }) => kind === one.kind)!
      expect(JSON.parse(comparable(other)), one.kind).toEqual(JSON.parse(comparable(one)))
    }
    const all = rendered(
      ...[
        "--set",
        "ingress.enabled=true",
        "--set",
        "ingress.host=gatehouse.example.com",
        "--set",
        "ingress.tlsSecret=t",
      ],
      ...["--set", "serviceMonitor.enabled=true", "--set-string", "env.TRUST_PROXY=2"],
    )
    const kinds = ["Deployment", "Ingress", "Job", "NetworkPolicy", "PodDisruptionBudget", "Service", "ServiceMonitor"]
    expect(all.map(({ kind }) => kind).toSorted()).toEqual(kinds)
    const of = (kind: string) => all.find((one) => one.kind === kind)!.spec
    expect(of("Job").template.spec.containers[0].args).toEqual(["migrate"])
    expect(of("ServiceMonitor").endpoints[0].authorization.credentials.key).toBe("METRICS_TOKEN")
  })

  it.skipIf(!hasHelm)("refuses secrets in values, and an address that is missing", () => {
    const refused = (...args: ReadonlyArray<string>) => template(...args).stderr
    expect(refused()).toContain("BASE_URL")
    expect(refused(...baseUrl, "--set", "env.ADMIN_TOKEN=a")).toContain("ADMIN_TOKEN")
    expect(refused(...baseUrl, "--set", "ingress.enabled=true")).toContain("ingress.host is the name of the service")
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

const hasTerraform = spawnSync("terraform", ["version"]).status === 0
if (!hasTerraform) process.stdout.write("the example of Terraform is not run: there is no terraform\n")

layer(TestServer.layer(onPostgres(guarded)), { excludeTestServices: true })("the example of Terraform", (it) => {
  const test = hasTerraform ? it.effect : it.effect.skip
  test("sets roles and workflows, changes them in place, and deletes those that go", () =>
    Effect.gen(function* () {
      const { send, url } = yield* TestServer
      const { orgId, key } = yield* makeTenant(adminToken)
      const folder = yield* freshFolder("empty")
      cpSync(new URL("../deploy/terraform/main.tf", import.meta.url), join(folder, "main.tf"))
      const main = fileURLToPath(new URL("../src/cli/main.ts", import.meta.url))
      writeFileSync(join(folder, "gatehouse"), `#!/bin/sh\nexec "${process.execPath}" "${main}" "$@"\n`, {
        mode: 0o755,
      })
      const terraform = Effect.fnUntraced(function* (...args: ReadonlyArray<string>) {
        const { code, err, out } = yield* run("terraform", [`-chdir=${folder}`, ...args, "-no-color"], {
          env: {
            ...{ PATH: `${folder}:${process.env["PATH"]}`, HOME: folder, CHECKPOINT_DISABLE: "1" },
            GATEHOUSE_URL: url,
            GATEHOUSE_TOKEN: key,
          },
        })
        expect(code, out + err).toBe(0)
      })
      const apply = (roles: object, workflows: object, ...args: ReadonlyArray<string>) =>
        terraform(
          ...["apply", "-auto-approve", "-input=false", `-var=org=${orgId}`, `-var=roles=${JSON.stringify(roles)}`],
          ...[`-var=workflows=${JSON.stringify(workflows)}`, ...args],
        )
      const state = Effect.gen(function* () {
        const { roles } = yield* must(send, "GET", `/api/v0/orgs/${orgId}/roles`, { as: adminToken })
        const { workflows } = yield* must(send, "POST", "/v1/workflows/list", {
          json: {},
          headers: { "x-api-key": key },
        })
        return [roles, workflows] as unknown as [ReadonlyArray<object>, ReadonlyArray<object>]
      })

      yield* terraform("init")
      yield* apply({ reader: ["files.*"], editor: ["*"] }, { mail: { rate: { limit: 10, window_seconds: 1 } } })
      const [roles, workflows] = yield* state
      expect(roles).toMatchObject([
        { name: "editor", permissions: ["*"] },
        { name: "reader", permissions: ["files.*"] },
      ])
      expect(workflows).toMatchObject([{ workflow: "mail", rate: { limit: 10, window_seconds: 1 } }])
      yield* apply({ reader: ["files.read"] }, { mail: { concurrency: 3 } })
      const [changed, set] = yield* state
      expect(changed).toMatchObject([{ name: "reader", permissions: ["files.read"] }])
      expect(set).toMatchObject([{ workflow: "mail", rate: null, concurrency: 3 }])
      // In place: the role was never away.
      const { entries } = yield* must(send, "GET", `/api/v0/orgs/${orgId}/audit?limit=100`, { as: adminToken })
      const gone = (entries as unknown as ReadonlyArray<{ readonly action: string; readonly details: object }>)
        .filter(({ action }) => action === "role.delete")
        .map(({ details }) => details)
      expect(gone).toEqual([{ name: "editor" }])
      expect(readFileSync(join(folder, "terraform.tfstate"), "utf8")).not.toContain(key)
      yield* apply({}, {}, "-destroy")
      expect(yield* state).toEqual([[], []])
    }))
})
