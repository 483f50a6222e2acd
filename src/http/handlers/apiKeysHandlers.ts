import { Effect, Redacted, Layer } from "effect"
import { HttpApiSchema } from "effect/http-api"
import { group } from "./group.ts"
import { ApiKeys } from "../../domain/keys/ApiKeys.ts"
import { KeyUsageReport } from "../../domain/keys/KeyUsage.ts"
import { LeakedKeys, ReportSignatures } from "../../domain/keys/LeakedKeys.ts"
import { KeyTokens } from "../../domain/keys/KeyTokens.ts"
import { Roles } from "../../domain/keys/Roles.ts"
import { Api } from "../api/Api.ts"
import { annotateOriginal, keyIn, ofNobody, upstreamHeaders } from "../proxyAuthorization.ts"
import { clientAddress } from "../clientAddress.ts"
import { HttpServerRequest } from "effect/http"
import { Unauthorized } from "../../domain/Errors.ts"
import { GithubSignature } from "../api/access.ts"

export const layer = group(Api, "keys", (handlers) =>
  Effect.map(Effect.all([ApiKeys, KeyUsageReport, KeyTokens]), ([keys, usages, tokens]) =>
    handlers.handleAll({
      createForProject: ({ payload }) => keys.createForProject(payload),
      createForOrg: ({ params, payload }) => keys.createForOrg(params.orgId, payload),
      importKeys: ({ params, payload }) => keys.importKeys(params.orgId, payload),
      get: ({ params }) => keys.get(params.orgId, params.id),
      list: ({ params, query }) => keys.list(params.orgId, query),
      remove: ({ params }) => Effect.as(keys.remove(params.orgId, params.id), { deleted: true }),
      update: ({ params, payload }) => keys.update(params.orgId, params.id, payload),
      usage: ({ params, query }) => usages.ofKey(params.orgId, params.id, query),
      orgUsage: ({ params, query }) => usages.ofOrg(params.orgId, query),
      rotate: ({ params, payload }) => keys.rotate(params.orgId, params.id, payload),
      authorize: ({ query: { header, permission, ...use }, request }) =>
        Effect.flatMap(
          Effect.all([
            Effect.fromResult(keyIn(request.headers, header)),
            clientAddress,
            annotateOriginal(request.headers),
          ]),
          ([key, address]) =>
            key === undefined
              ? Effect.succeed(ofNobody)
              : Effect.map(
                  keys.authorize(Redacted.make(key), address, { ...use, permissions: permission, clientIp: address }),
                  upstreamHeaders,
                ),
        ).pipe(Effect.map((headers) => HttpApiSchema.withHeaders({ body: undefined, headers }))),
      token: ({ payload: { key, ...asked } }) =>
        Effect.flatMap(clientAddress, (address) => tokens.exchange(Redacted.make(key), address, asked)),
      validate: ({ payload: { key, ...use } }) =>
        Effect.flatMap(clientAddress, (address) => keys.validate(Redacted.make(key), address, use)),
    }),
  ),
)

export const roles = group(Api, "roles", (handlers) =>
  Effect.map(Roles, (roles) =>
    handlers.handleAll({
      list: ({ params }) => Effect.map(roles.list(params.orgId), (all) => ({ roles: all })),
      put: ({ params, payload }) => roles.put(params.orgId, params.name, payload),
      remove: ({ params }) => Effect.as(roles.remove(params.orgId, params.name), { deleted: true }),
    }),
  ),
)

export const secretScanning = group(Api, "secretScanning", (handlers) =>
  Effect.map(LeakedKeys, (leaked) => handlers.handleAll({ github: ({ payload }) => leaked.report(payload) })),
)

const refused = new Unauthorized({
  error: "The signature is not valid: Github-Public-Key-Signature must be GitHub's signature of this request body.",
})

/** Checks the signature of the raw body before the body is decoded. */
export const githubSignature = Layer.effect(
  GithubSignature,
  Effect.map(ReportSignatures, ({ verify }) =>
    Effect.fnUntraced(function* (operation) {
      const request = yield* HttpServerRequest.HttpServerRequest
      const { "github-public-key-identifier": keyId, "github-public-key-signature": signature } = request.headers
      if (keyId === undefined || signature === undefined) return yield* refused
      // The body is kept, and decoded afterwards.
      const body = new Uint8Array(yield* Effect.orDie(request.arrayBuffer))
      if (!(yield* verify({ keyId, signature, body }))) return yield* refused
      return yield* operation
    }),
  ),
)
