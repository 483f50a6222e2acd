import { type Redacted, Schema } from "effect"
import { atMost, NonEmptyText, Text } from "../Schemas.ts"

const tokenUrl = Text.check(atMost(2048)).annotate({
  description: "oauth2: the URL that issues tokens. It follows the rules of url.",
  examples: ["https://login.example.com/oauth/token"],
})
const clientId = NonEmptyText.check(atMost(255)).annotate({
  description: "oauth2: the id of the client.",
  examples: ["gatehouse"],
})
const scope = NonEmptyText.check(atMost(1000)).annotate({
  description: "oauth2: the scopes to ask for, separated by spaces.",
  examples: ["webhooks:write"],
})
const clientAuth = Schema.Literals(["basic", "body"]).annotate({
  description: "oauth2: where the client's id and secret are sent: as HTTP Basic (default), or in the body.",
})
const type = Schema.Literals(["oauth2", "mtls"]).annotate({
  description: "oauth2: a token by client credentials. mtls: a client certificate.",
})
const pem = (beginning: string) =>
  Schema.String.check(
    atMost(16_384),
    Schema.makeFilter((text: string) => text.trimStart().startsWith(beginning), {
      expected: `PEM that begins with ${beginning}`,
      toJsonSchema: () => [{}, true],
    }),
  )

const fieldsOfType = {
  oauth2: { needed: ["token_url", "client_id", "client_secret"], others: ["scope", "client_auth"] },
  mtls: { needed: ["certificate", "private_key"], others: [] },
} as const satisfies Record<typeof type.Type, object>

export const aboutAuth =
  "How the requests are authorized, beside their signature. It is stored encrypted, and answers show no secret of it. " +
  "null: not at all."
const Fields = Schema.Struct({
  type,
  token_url: Schema.optionalKey(tokenUrl),
  client_id: Schema.optionalKey(clientId),
  client_secret: Schema.optionalKey(
    NonEmptyText.check(atMost(2048)).annotate({
      description: "oauth2: the secret of the client.",
      examples: ["s3cr3t"],
    }),
  ),
  scope: Schema.optionalKey(scope),
  client_auth: Schema.optionalKey(clientAuth),
  certificate: Schema.optionalKey(
    pem("-----BEGIN CERTIFICATE-----").annotate({
      description: "mtls: the client's certificate, and intermediate ones after it, in PEM.",
    }),
  ),
  private_key: Schema.optionalKey(
    // `PRIVATE KEY`, `RSA PRIVATE KEY` and `EC PRIVATE KEY`; which of them is checked with the certificate.
    pem("-----BEGIN").annotate({ description: "mtls: the certificate's private key, in PEM and not encrypted." }),
  ),
})
type Fields = typeof Fields.Type

/** The fields of a type; `EndpointAuth` requires the needed ones. */
type AuthOf<Type extends Fields["type"]> = { readonly type: Type } & Required<
  Pick<Fields, (typeof fieldsOfType)[Type]["needed"][number]>
> &
  Pick<Fields, (typeof fieldsOfType)[Type]["others"][number]>

const faultOf = (auth: Fields) => {
  const { needed, others } = fieldsOfType[auth.type]
  const missing = needed.find((name) => auth[name] === undefined)
  if (missing !== undefined) return `of type ${auth.type} needs ${needed.join(", ")}; ${missing} is absent`
  const allowed: ReadonlyArray<string> = ["type", ...needed, ...others]
  const surplus = Object.keys(auth).find((name) => !allowed.includes(name))
  return surplus === undefined ? undefined : `of type ${auth.type} takes no ${surplus}`
}
const approximate: Schema.Annotations.Filter = { toJsonSchema: () => [{}, true] }

/** How the requests to an endpoint are authorized, beside their signature. One object in the OpenAPI document. */
export const EndpointAuth = Fields.check(Schema.makeFilter(faultOf, approximate))
  .pipe(Schema.refine((auth): auth is AuthOf<"oauth2"> | AuthOf<"mtls"> => faultOf(auth) === undefined, approximate))
  .annotate({
    description: aboutAuth,
    examples: [
      {
        type: "oauth2",
        token_url: "https://login.example.com/oauth/token",
        client_id: "gatehouse",
        client_secret: "s3cr3t",
        scope: "webhooks:write",
      },
    ],
  })
export type EndpointAuth = typeof EndpointAuth.Type
export type OAuth2 = Extract<EndpointAuth, { readonly type: "oauth2" }>

/** `EndpointAuth` in answers. */
export const ShownAuth = Schema.Struct({
  type,
  token_url: Schema.optionalKey(tokenUrl),
  client_id: Schema.optionalKey(clientId),
  scope: Schema.optionalKey(scope),
  client_auth: Schema.optionalKey(clientAuth),
  certificate_expires_at: Schema.optionalKey(
    Schema.String.annotate({ description: "mtls: when the certificate ends.", examples: ["2027-03-01T12:00:00.000Z"] }),
  ),
})
export type ShownAuth = typeof ShownAuth.Type

/** A client certificate and its private key, in PEM. */
export interface ClientIdentity {
  readonly certificate: string
  readonly privateKey: Redacted.Redacted<string>
}
