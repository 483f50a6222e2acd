import type { ReadRun } from "../CiRun.ts"
import { bitbucketIssuer, readBitbucket } from "./bitbucket.ts"
import { readBuildkite } from "./buildkite.ts"
import { readCircleCI } from "./circleci.ts"
import { readGitHub } from "./github.ts"
import { readGitLab } from "./gitlab.ts"

/** How the service reads the tokens of a known provider. */
interface Preset {
  /** The provider's own issuer; `undefined`: each customer has another one. */
  readonly issuer: string | undefined
  /** An example of an issuer, for messages. */
  readonly example: string
  /** Whether an issuer has the form of this provider. */
  readonly isIssuer: (issuer: string) => boolean
  /** Whether the provider decides the audience, so that `OIDC_AUDIENCE` cannot be right. */
  readonly hasOwnAudience: boolean
  /** The path of the keys under the issuer; `undefined`: the discovery document names them. */
  readonly keysPath: string | undefined
  readonly read: (issuer: string) => ReadRun
}

const anyIssuer = () => true

/** The path of GitHub's keys under its issuer, and of those of issuers without a discovery document. */
export const keysPath = "/.well-known/jwks"

export const presets = {
  github: {
    issuer: "https://token.actions.githubusercontent.com",
    example: "https://github.example.com/_services/token",
    isIssuer: anyIssuer,
    hasOwnAudience: false,
    keysPath,
    read: () => readGitHub,
  },
  gitlab: {
    issuer: "https://gitlab.com",
    example: "https://gitlab.example.com",
    isIssuer: anyIssuer,
    hasOwnAudience: false,
    keysPath: undefined,
    read: () => readGitLab,
  },
  bitbucket: {
    issuer: undefined,
    example: "https://api.bitbucket.org/2.0/workspaces/acme/pipelines-config/identity/oidc",
    isIssuer: (issuer) => bitbucketIssuer.test(issuer),
    hasOwnAudience: false,
    keysPath: undefined,
    read: readBitbucket,
  },
  circleci: {
    issuer: undefined,
    example: "https://oidc.circleci.com/org/8a1fdada-cbc0-452c-81ce-07534945e18b",
    isIssuer: anyIssuer,
    hasOwnAudience: true,
    keysPath: undefined,
    read: () => readCircleCI,
  },
  buildkite: {
    issuer: "https://agent.buildkite.com",
    example: "https://agent.buildkite.com",
    isIssuer: anyIssuer,
    hasOwnAudience: false,
    keysPath: undefined,
    read: () => readBuildkite,
  },
} satisfies Record<string, Preset>

export type PresetName = keyof typeof presets
export const presetNames = Object.keys(presets) as ReadonlyArray<PresetName>
export const presetOf = (name: PresetName): Preset => presets[name]
