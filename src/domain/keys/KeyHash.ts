import { Context } from "effect"

/** Returns the SHA-256 of a key in lower-case hex. The service stores and finds keys by it. */
export class KeyHash extends Context.Service<KeyHash, (key: string) => string>()("gatehouse/domain/KeyHash") {}
