import { Context } from "effect"
import { HttpApi } from "effect/http-api"
import type { PrincipalKind } from "../../domain/sessions/sessionRequests.ts"
import { Api } from "../api/Api.ts"
import { Callers } from "../api/security.ts"

const operations: Array<{ readonly id: string; readonly callers: ReadonlyArray<PrincipalKind> }> = []
HttpApi.reflect(Api, {
  onGroup: () => {},
  onEndpoint: ({ endpoint, group }) => {
    const callers = Context.get(endpoint.annotations, Callers)
    operations.push({ id: `${group.identifier}.${endpoint.identifier}`, callers })
  },
})

const kindsIn = (kind: PrincipalKind, open: boolean): ReadonlyArray<PrincipalKind> => {
  if (!open || kind === "portal") return [kind]
  // In open mode everyone manages every org; without a credential, everyone may chat.
  return kind === "anonymous" ? ["anonymous", "administrator", "projectKey"] : [kind, "administrator"]
}

/** The operationIds that a principal may call. */
export const operationsOf = (kind: PrincipalKind, open: boolean): ReadonlyArray<string> => {
  const kinds = kindsIn(kind, open)
  return operations.filter(({ callers }) => kinds.some((one) => callers.includes(one))).map(({ id }) => id)
}
