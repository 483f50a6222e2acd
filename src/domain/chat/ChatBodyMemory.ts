import { Context, Effect } from "effect"

/** The memory for the request bodies of chats. */
export const ChatBodyMemory = Context.Reference<{
  /** The bytes of all bodies together, from before they are read until their documentation is indexed. */
  readonly bytes: number
  /** Returns the memory of a large body to the operating system. */
  readonly release: Effect.Effect<void>
}>("gatehouse/domain/chat/ChatBodyMemory", {
  defaultValue: () => ({ bytes: 16 * 1024 * 1024, release: Effect.void }),
})
