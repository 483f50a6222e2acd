import { Effect, Result } from "effect"
import { Unauthorized } from "../domain/Errors.ts"
import type { AuthorizedUse } from "../domain/keys/KeyChecks.ts"
import { authorizePath } from "./api/apiKeysApi.ts"
import * as Credentials from "./credentials.ts"

// What a proxy sends before it lets a request through (`auth_request`, `ext_authz`, `forwardAuth`), and what it gets.

/**
 * The policy of an authorization: the query of its URL, or one segment of its path, for Envoy, which appends the path
 * and the query of the request that it asks about. `-` is an empty policy. `undefined`: the URL is another operation's.
 * Nothing after the segment is read: a client chooses it.
 */
export const policyIn = (url: string): string | undefined => {
  if (!url.startsWith(authorizePath)) return undefined
  const rest = url.slice(authorizePath.length)
  if (rest === "") return rest
  if (rest.startsWith("?")) return rest.slice(1)
  const segment = /^\/([^/?]*)/.exec(rest)?.[1]
  if (segment === "-") return ""
  return segment?.includes("=") === true ? segment : undefined
}

/**
 * Whether a request may name a body that it does not have: proxies copy the length of their client's request and leave
 * out its body. What follows on the connection would be read as that body.
 */
export const mayLackBody = ({
  headers,
  url = "",
}: {
  readonly headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>
  readonly url?: string | undefined
}): boolean =>
  (Number(headers["content-length"] ?? 0) > 0 || headers["transfer-encoding"] !== undefined) &&
  policyIn(url) !== undefined

/** The header of a browser's preflight, which asks with OPTIONS, and without a key. Source: Fetch, section 3.3.2. */
const preflight = "access-control-request-method"

/**
 * Makes an authorization with any method, and with a policy in its path, the one request that the router knows. Of the
 * method, only that it is a preflight matters, by its header: other requests lose it.
 */
export const asRouted = (request: {
  url?: string | undefined
  method?: string | undefined
  readonly headers: Record<string, string | ReadonlyArray<string> | undefined>
}): void => {
  const policy = request.url === undefined ? undefined : policyIn(request.url)
  if (policy === undefined) return
  if (request.method !== "OPTIONS") delete request.headers[preflight]
  request.method = "GET"
  request.url = policy === "" ? authorizePath : `${authorizePath}?${policy}`
}

const keyNeeded = new Unauthorized({ error: "The request needs an API key: Authorization: Bearer <key>." })

/**
 * The key of the request that a proxy asks about: in the header that the policy names, as it is or after `Bearer`, else
 * the bearer token of `Authorization`, or `x-api-key`. `undefined`: a preflight without one, which the application
 * answers.
 */
export const keyIn = (
  headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>,
  header: string | undefined,
): Result.Result<string | undefined, Unauthorized> => {
  const missing = (error: Unauthorized) => (headers[preflight] ? Result.succeed(undefined) : Result.fail(error))
  if (header === undefined) {
    return Result.flatMap(Credentials.parse(headers), (credential) =>
      credential === undefined ? missing(keyNeeded) : Result.succeed(credential.token),
    )
  }
  const value = Credentials.headerValue(headers, header.toLowerCase())?.replace(/^Bearer +/i, "")
  return value
    ? Result.succeed(value)
    : missing(new Unauthorized({ error: `The request needs an API key in the header ${header}.` }))
}

/** A text as a header: what is not visible ASCII, and `%`, as in URLs. `decodeURIComponent` restores it. */
const headerText = (text: string) => text.toWellFormed().replace(/[^\x21-\x24\x26-\x7e]+/g, encodeURIComponent)

/** The permissions of a longer list are left out: proxies refuse a response with headers of 4 to 8 KiB. */
const maxPermissionsLength = 2048

/** The headers for the upstream of a request without a key. */
export const ofNobody = {
  "x-gatehouse-org": "",
  "x-gatehouse-project": "",
  "x-gatehouse-key": "",
  "x-gatehouse-external-id": "",
  "x-gatehouse-permissions": "",
  "x-gatehouse-credits": "",
}

/**
 * The headers for the upstream. Each is there, empty when it does not apply: a proxy that copies it replaces what the
 * client has sent. Source of the last two: draft-ietf-httpapi-ratelimit-headers-10.
 */
export const upstreamHeaders = ({ credits, grant, rate }: AuthorizedUse) => {
  const permissions = grant.permissions.list.join(" ")
  /** The seconds until the limit is whole again. */
  const wholeIn = rate === null ? 0 : Math.ceil(((rate.limit - rate.remaining) * rate.window) / rate.limit)
  return {
    "x-gatehouse-org": grant.orgId,
    "x-gatehouse-project": grant.projectId,
    "x-gatehouse-key": grant.keyId,
    "x-gatehouse-external-id": grant.externalId === null ? "" : headerText(grant.externalId),
    "x-gatehouse-permissions": permissions.length > maxPermissionsLength ? "" : permissions,
    "x-gatehouse-credits": credits === null ? "" : String(credits),
    ...(rate === null
      ? {}
      : {
          ratelimit: `"key";r=${rate.remaining};t=${wholeIn}`,
          "ratelimit-policy": `"key";q=${rate.limit};w=${rate.window}`,
        }),
  }
}

/** Headers in which proxies name the method and the path of the request that they ask about. */
const ofMethod = ["x-forwarded-method", "x-original-method"]
const ofPath = ["x-forwarded-uri", "x-original-uri", "x-original-url", "x-envoy-original-path"]
const maxPathLength = 200

/** Adds the method and the path of the request to the span, without its query. A proxy that is not trusted may lie. */
export const annotateOriginal = (headers: Readonly<Record<string, string | undefined>>) => {
  const find = (names: ReadonlyArray<string>) => names.map((name) => headers[name]).find((value) => value !== undefined)
  const [method, path] = [find(ofMethod), find(ofPath)]
  return Effect.annotateCurrentSpan({
    ...(method === undefined ? {} : { "gatehouse.original.method": method.slice(0, 16) }),
    ...(path === undefined ? {} : { "gatehouse.original.path": path.split("?", 1)[0]!.slice(0, maxPathLength) }),
  })
}
