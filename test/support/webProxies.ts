import { Effect } from "effect"
import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { Agent } from "node:http"
import { type AddressInfo, createServer as createTcpServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { until } from "./wait.ts"
import { sender } from "./wire.ts"

/** Starts a server at a free port, which it returns. */
export const listening = async (server: {
  listen: (port: number, host: string) => unknown
  address: () => unknown
}) => {
  const ready = once(server as never, "listening")
  server.listen(0, "127.0.0.1")
  await ready
  return (server.address() as AddressInfo).port
}

export const freePort = async () => {
  const server = createTcpServer()
  const port = await listening(server)
  await new Promise((done) => server.close(done))
  return port
}

/** A proxy of others: how it is started in a folder with the text of its configuration. */
export interface WebProxy {
  readonly name: "nginx" | "Caddy" | "Traefik"
  readonly command: string
  readonly start: (folder: string, configuration: string, port: number) => ChildProcess
}

export const nginx: WebProxy = {
  name: "nginx",
  command: "nginx",
  start: (folder, configuration) => {
    const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
      .map((name) => `${name}_temp_path ${folder}/${name};`)
      .join("\n")
    writeFileSync(
      join(folder, "nginx.conf"),
      `daemon off; master_process off; pid ${folder}/pid; error_log stderr; events {}
      http { access_log off; ${temporary} ${configuration} }`,
    )
    return spawn("nginx", ["-p", folder, "-e", "stderr", "-c", join(folder, "nginx.conf")], { stdio: "ignore" })
  },
}

export const caddy: WebProxy = {
  name: "Caddy",
  command: "caddy",
  start: (folder, configuration) => {
    writeFileSync(join(folder, "Caddyfile"), `{\n\tadmin off\n}\n${configuration}`)
    const environment = { ...process.env, HOME: folder, XDG_CONFIG_HOME: folder, XDG_DATA_HOME: folder }
    return spawn("caddy", ["run", "--adapter", "caddyfile", "--config", join(folder, "Caddyfile")], {
      stdio: "ignore",
      env: environment,
    })
  },
}

/** The ports of Traefik are no part of the file that its example is. */
export const traefik: WebProxy = {
  name: "Traefik",
  command: "traefik",
  start: (folder, configuration, port) => {
    writeFileSync(join(folder, "dynamic.yaml"), configuration)
    return spawn(
      "traefik",
      [
        `--entryPoints.websecure.address=127.0.0.1:${port}`,
        `--providers.file.filename=${join(folder, "dynamic.yaml")}`,
      ],
      { stdio: "ignore", cwd: folder },
    )
  },
}

/** Whether a proxy is installed; says which tests are skipped. */
export const isInstalled = ({ command }: WebProxy) => {
  const found = spawnSync(command, ["-h"], { stdio: "ignore" }).error === undefined
  if (!found) process.stdout.write(`the tests behind ${command} are skipped: it is not installed\n`)
  return found
}

/** A proxy that answers at its port; it ends with the scope. */
export const running = Effect.fnUntraced(function* ({ name, start }: WebProxy, port: number, configuration: string) {
  const folder = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "gateway-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true })),
  )
  const child = yield* Effect.acquireRelease(
    Effect.sync(() => start(folder, configuration, port)),
    (process) =>
      Effect.promise(async () => {
        const ended = process.exitCode === null ? once(process, "exit") : undefined
        process.kill()
        await ended
      }),
  )
  const agent = yield* Effect.acquireRelease(
    Effect.sync(() => new Agent({ keepAlive: true })),
    (made) => Effect.sync(() => made.destroy()),
  )
  const send = sender(`http://127.0.0.1:${port}`, agent)
  // Traefik answers so until it has read its routes.
  yield* until(`${name} answers`, send("GET", "/"), ({ text }) => text !== "404 page not found\n")
  if (child.exitCode !== null) return yield* Effect.die(new Error(`${name} has ended`))
  return send
})
