import { Context, Effect } from "effect"

/** The memory of the bodies of chats. */
export const ChatBodyMemory = Context.Reference<{
  /** How many bytes they may have together, from before they are read until their documentation is indexed. */
  readonly bytes: number
  /** Gives back what a large body has left behind. */
  readonly giveBack: Effect.Effect<void>
}>("gatehouse/domain/chat/ChatBodyMemory", {
  defaultValue: () => ({ bytes: 16 * 1024 * 1024, giveBack: Effect.void }),
})
