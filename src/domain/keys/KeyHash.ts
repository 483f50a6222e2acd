import { Context } from "effect"

/** The SHA-256 of a key in lower-case hex: all that is stored of it, and what it is looked up by. */
export class KeyHash extends Context.Service<KeyHash, (key: string) => string>()("gatehouse/domain/KeyHash") {}
