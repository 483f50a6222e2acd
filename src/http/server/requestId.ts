import { randomUUID } from "node:crypto"

const safe = /^[A-Za-z0-9._:/+=-]{1,128}$/

/** The id of a request: its `x-request-id` if that has 1 to 128 safe characters, else a new id. */
export const requestIdOf = (sent: string | ReadonlyArray<string> | undefined): string =>
  typeof sent === "string" && safe.test(sent) ? sent : randomUUID()
