import type { Effect, Redacted } from "effect"
import { Context } from "effect"
import type { Unauthorized, Unavailable } from "../Errors.ts"
import type { CiRun } from "./CiRun.ts"

/** Verifies CI tokens with the published keys of their provider. */
export class CiTokenVerifier extends Context.Service<
  CiTokenVerifier,
  {
    /**
     * Returns the run of a token with a known issuer and a valid signature, audience and lifetime. Fails with
     * `Unauthorized` and a sentence without the token, or with `Unavailable` when the provider is down and the key of the
     * token is not known.
     */
    readonly verify: (token: Redacted.Redacted<string>) => Effect.Effect<CiRun, Unauthorized | Unavailable>
  }
>()("gatehouse/domain/CiToken/CiTokenVerifier") {}
