import { Context, Data, DateTime, Effect, Layer, Redacted, Schema } from "effect"
import { SecureRandom } from "effect/crypto"
import * as Hex from "effect/encoding/Hex"
import type { Unauthorized, Unavailable } from "../Errors.ts"
import { KeyHash } from "../keys/ApiKeyRepository.ts"
import { AuditLog } from "../audit/AuditLog.ts"
import { OrgRepository } from "../orgs/Orgs.ts"
import { personActor, requireAdministrator } from "../Principal.ts"
import { type Grant, grantsOf, type Person, personOf, Role, type RoleRule } from "../Person.ts"
import { Id } from "../Schemas.ts"
import { SessionRepository } from "./SessionRepository.ts"
import { Sessions, type SignedIn } from "./Sessions.ts"

/** Why nobody was signed in. */
export class SignInFailed extends Data.TaggedError("SignInFailed")<{
  /**
   * `state`: the browser did not begin this sign-in. `denied`: the provider let nobody in. `provider`: it is down, or
   * what it says is wrong. `role`: no role for this person.
   */
  readonly reason: "state" | "denied" | "provider" | "role"
  /** For the log: no secret, and nothing that the provider has said. */
  readonly detail: string
}> {}

/** What an id token says, once it is verified. */
interface Identity {
  readonly subject: string
  /** The session at the provider, by which it signs people out. */
  readonly sid: string | undefined
  readonly expiresAt: DateTime.Utc
  readonly claims: Readonly<Record<string, unknown>>
}

/** The company's identity provider. */
export class IdentityProvider extends Context.Service<
  IdentityProvider,
  {
    /** Where the browser goes to sign in. */
    readonly authorizationUrl: (request: {
      readonly state: string
      readonly nonce: string
      readonly verifier: string
    }) => Effect.Effect<string, SignInFailed>
    /** Exchanges a code for the verified identity. */
    readonly exchange: (answer: {
      readonly code: Redacted.Redacted<string>
      readonly nonce: string
      readonly verifier: string
    }) => Effect.Effect<Identity, SignInFailed>
    /** Whom a logout token signs out: a session at the provider, or all of a person, that began before. */
    readonly verifyLogout: (
      token: Redacted.Redacted<string>,
    ) => Effect.Effect<
      { readonly subject: string | undefined; readonly sid: string | undefined; readonly before: DateTime.Utc },
      Unauthorized | Unavailable
    >
  }
>()("gatehouse/domain/People/IdentityProvider") {}

/** Who may sign in, by the settings of the operator. */
interface PeopleSettings {
  readonly issuer: string
  readonly clientId: string
  readonly rules: ReadonlyArray<RoleRule>
}

/** Who may sign in with the company's identity. */
export const SignInRules = Schema.Struct({
  issuer: Schema.NullOr(Schema.String).annotate({
    description: "CONSOLE_OIDC_ISSUER. null: people do not sign in with their own identity.",
    examples: ["https://login.example.com/realms/acme"],
  }),
  rules: Schema.Array(
    Schema.Struct({
      claim: Schema.String.annotate({ description: "The claim of the id token.", examples: ["groups"] }),
      value: Schema.String.annotate({ description: "The value of the claim: a group.", examples: ["support"] }),
      role: Role,
      orgId: Schema.NullOr(Id).annotate({ description: "The org of the role. null: every org." }),
    }),
  ).annotate({ description: "CONSOLE_OIDC_ROLES, in its order. Of several roles the strongest counts." }),
}).annotate({ identifier: "SignInRules" })
export interface SignInRules extends Schema.Schema.Type<typeof SignInRules> {}

/** Signs people in with the company's identity. `undefined`: the operator has not set that up. */
export const People = Context.Reference<
  | {
      readonly issuer: string
      readonly rules: ReadonlyArray<RoleRule>
      /**
       * Begins a sign-in. Returns where the browser goes, and a secret for a cookie of this browser, from which
       * everything else of the sign-in follows: each replica can finish it.
       */
      readonly start: (
        orgId: string | undefined,
      ) => Effect.Effect<{ readonly url: string; readonly secret: Redacted.Redacted<string> }, SignInFailed>
      /** Somebody is signed in, or has to say in which of their orgs. */
      readonly finish: (
        callback: Readonly<Record<"state" | "code" | "error" | "iss", string | null>>,
        secret: Redacted.Redacted<string> | undefined,
      ) => Effect.Effect<
        { readonly signedIn: SignedIn } | { readonly choices: ReadonlyArray<Grant & { readonly name: string }> },
        SignInFailed | Unavailable
      >
      /** Ends sessions by a token of the provider. */
      readonly logOut: (token: Redacted.Redacted<string>) => Effect.Effect<void, Unauthorized | Unavailable>
      /** What a session of the person stands for, as `credentialHash`: it ends when the settings change. */
      readonly credentialOf: (person: Pick<Person, "subject">) => string
    }
  | undefined
>("gatehouse/domain/People", { defaultValue: () => undefined })

/** The rules by which people may sign in, without any secret. */
export const signInRules = Effect.gen(function* () {
  yield* requireAdministrator
  const { issuer = null, rules = [] } = (yield* People) ?? {}
  return { issuer, rules: rules.map(({ orgId, ...rule }) => ({ ...rule, orgId: orgId === "" ? null : orgId })) }
})

const failed = (reason: SignInFailed["reason"], detail: string) => Effect.fail(new SignInFailed({ reason, detail }))

/** An error code of the provider, if it may be in a log. Source: RFC 6749, section 4.1.2.1. */
const errorCode = (error: string) => (/^[a-z_]{1,40}$/.test(error) ? error : "with an unknown name")

export const layer = ({ clientId, issuer, rules }: PeopleSettings) =>
  Layer.effect(
    People,
    Effect.gen(function* () {
      const provider = yield* IdentityProvider
      const orgs = yield* OrgRepository
      const repository = yield* SessionRepository
      const sessions = yield* Sessions
      const audit = yield* AuditLog
      const random = yield* SecureRandom.SecureRandom
      const hashOf = yield* KeyHash
      const settings = JSON.stringify([issuer, clientId, rules])
      const orgIds = [...new Set(rules.map(({ orgId }) => orgId))]

      const credentialOf = ({ subject }: Pick<Person, "subject">) => hashOf(`person ${settings} ${subject}`)

      const derived = (secret: Redacted.Redacted<string>) => {
        const of = (purpose: string) => hashOf(`${purpose} ${Redacted.value(secret)}`)
        return { state: of("state"), nonce: of("nonce"), verifier: of("verifier") }
      }

      /** The roles in orgs that exist, with the names of the orgs. */
      const grantsNow = Effect.fnUntraced(function* (claims: Identity["claims"]) {
        const found = yield* Effect.forEach(grantsOf(rules, claims), (grant) =>
          grant.orgId === ""
            ? Effect.succeed([{ ...grant, name: "" }])
            : orgs.find(grant.orgId).pipe(
                Effect.map(({ name }) => [{ ...grant, name }]),
                Effect.catchTag("NotFound", () => Effect.succeed([])),
              ),
        )
        return found.flat()
      })

      /** Ends sessions of a person, each with an entry of the audit log. */
      const end = (ended: Omit<Parameters<SessionRepository["Service"]["removePerson"]>[0], "orgIds">) =>
        repository.removePerson({ ...ended, orgIds }, ({ id, person }) =>
          audit.entryOf(personActor(person!.subject), person, {
            action: "session.end",
            target: id,
            details: { reason: ended.except === undefined ? "logout" : "role" },
          }),
        )

      const enter = Effect.fnUntraced(function* (
        { claims, expiresAt, sid, subject }: Identity,
        { orgId, role }: Grant,
      ) {
        const person = { ...personOf(subject, claims), role }
        yield* Effect.annotateLogs(Effect.logInfo(`A person signs in as ${role}`), { subject })
        const credentialHash = credentialOf(person)
        return yield* sessions.signInPerson({ orgId, person, sid: sid ?? null, credentialHash, expiresAt })
      })

      const service: NonNullable<typeof People.Service> = {
        issuer,
        rules,
        credentialOf,

        start: Effect.fn("People.start")(function* (orgId: string | undefined) {
          const text = Hex.encode(yield* random.randomBytes(32))
          const secret = Redacted.make(orgId === undefined ? text : `${text}.${orgId}`)
          return { url: yield* provider.authorizationUrl(derived(secret)), secret }
        }),

        finish: Effect.fn("People.finish")(function* ({ code, error, iss, state }, secret) {
          const own = secret && derived(secret)
          if (own === undefined || state !== own.state) return yield* failed("state", "another browser began it")
          if (iss !== null && iss !== issuer) return yield* failed("state", "another issuer answers")
          if (error !== null) return yield* failed("denied", `the provider answers with the error ${errorCode(error)}`)
          if (code === null) return yield* failed("provider", "the provider sends neither a code nor an error")
          const identity = yield* provider.exchange({ ...own, code: Redacted.make(code) })
          if (DateTime.isLessThanOrEqualTo(identity.expiresAt, yield* DateTime.now))
            return yield* failed("provider", "the id token has ended: compare the clocks")
          const grants = yield* grantsNow(identity.claims)
          // What the provider says now is newer than what it said before, whatever the clocks of replicas say.
          yield* end({
            credentialHash: credentialOf(identity),
            sid: undefined,
            except: grants.map(({ orgId, role }) => `${orgId}:${role}`),
          })
          const wanted = Redacted.value(secret!).split(".")[1]
          const [first, second] = grants
          if (first === undefined)
            return yield* failed(
              "role",
              `no entry of CONSOLE_OIDC_ROLES gives a role to the subject ${identity.subject}`,
            )
          const isOne = first.orgId === "" || second === undefined
          const grant = grants.find(({ orgId }) => orgId === wanted) ?? (isOne ? first : undefined)
          return grant === undefined ? { choices: grants } : { signedIn: yield* enter(identity, grant) }
        }),

        logOut: Effect.fn("People.logOut")(function* (token) {
          const { before, sid, subject } = yield* provider.verifyLogout(token)
          const credentialHash = subject === undefined ? undefined : credentialOf({ subject })
          yield* end({ before, credentialHash, sid })
        }),
      }
      return service
    }),
  )
