import { Schema } from "effect"
import { cut } from "./Schemas.ts"

/** What people may be, the strongest first. Of all orgs: administrator, operator, viewer; of one: the last three. */
const roles = ["administrator", "operator", "owner", "developer", "viewer"] as const
export const Role = Schema.Literals(roles).annotate({
  description:
    "The role of a person: administrator, operator or viewer of all orgs; owner, developer or viewer of one.",
  examples: ["developer"],
})
export type Role = typeof Role.Type
export const rolesOfAll: ReadonlyArray<Role> = ["administrator", "operator", "viewer"]
export const rolesOfOrg: ReadonlyArray<Role> = ["owner", "developer", "viewer"]

const orNull = (description: string, example: string) =>
  Schema.NullOr(Schema.String).annotate({ description, examples: [example] })

/** A person as the company's identity provider named them when they signed in. */
export const Person = Schema.Struct({
  subject: Schema.String.annotate({
    description: "The id of the person at the identity provider: the claim sub.",
    examples: ["248289761001"],
  }),
  name: orNull("The name of the person. null: the provider did not say.", "Jo Doe"),
  email: orNull("The e-mail address of the person. null: the provider did not say.", "jo@example.com"),
}).annotate({ identifier: "Person" })
export interface Person extends Schema.Schema.Type<typeof Person> {}

/** A person who has signed in, with the role of their session. */
export const SignedInPerson = Schema.Struct({ ...Person.fields, role: Role }).annotate({ identifier: "SignedInPerson" })
export interface SignedInPerson extends Schema.Schema.Type<typeof SignedInPerson> {}

/** A role of one org, or of all: then `orgId` is empty. */
export interface Grant {
  readonly role: Role
  readonly orgId: string
}

/** Who has a role: those whose id token has the value in the claim, a text or a list of texts. */
export interface RoleRule extends Grant {
  readonly claim: string
  readonly value: string
}

type Claims = Readonly<Record<string, unknown>>

const own = (value: unknown, name: string): unknown =>
  typeof value === "object" && value !== null && Object.hasOwn(value, name)
    ? (value as Record<string, unknown>)[name]
    : undefined

/**
 * The values of a claim: the claim of this name, or the one at the end of a path with dots. An e-mail address that the
 * provider has not verified is none: anybody could have entered it.
 */
const valuesOf = (claims: Claims, claim: string): ReadonlyArray<unknown> => {
  if (claim === "email" && claims["email_verified"] !== true) return []
  return [own(claims, claim) ?? claim.split(".").reduce(own, claims)].flat()
}

/** What a person may be by their claims: the strongest role of each org, those of all orgs first. */
export const grantsOf = (rules: ReadonlyArray<RoleRule>, claims: Claims): ReadonlyArray<Grant> => {
  const byOrg = new Map<string, Role>()
  for (const { claim, orgId, role, value } of rules) {
    const isStronger = roles.indexOf(role) < roles.indexOf(byOrg.get(orgId) ?? "viewer")
    if (valuesOf(claims, claim).includes(value) && (isStronger || !byOrg.has(orgId))) byOrg.set(orgId, role)
  }
  const grants = [...byOrg].map(([orgId, role]): Grant => ({ orgId, role }))
  return grants.toSorted((a, b) => Number(a.orgId !== "") - Number(b.orgId !== ""))
}

/** The longest name and e-mail address that are kept. */
const maxTextLength = 255

const textOf = (value: unknown) => {
  const text =
    typeof value === "string"
      ? value
          .toWellFormed()
          .replace(/\p{Cc}/gu, "")
          .trim()
      : ""
  return text === "" ? null : cut(text.toWellFormed(), maxTextLength)
}

/** The person of an id token. */
export const personOf = (subject: string, claims: Claims): Person => ({
  subject,
  name: textOf(claims["name"]) ?? textOf(claims["preferred_username"]),
  email: textOf(claims["email"]),
})
