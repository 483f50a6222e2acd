import { randomUUID } from "node:crypto"

const sane = /^[A-Za-z0-9._:/+=-]{1,128}$/

/** The id of a request: the caller's `x-request-id` when it is a sane one, else a new one. */
export const requestIdOf = (sent: string | ReadonlyArray<string> | undefined): string =>
  typeof sent === "string" && sane.test(sent) ? sent : randomUUID()
