import { createOpenAICompatible } from "@ai-sdk/openai-compatible"
import { isStepCount, jsonSchema, streamText, tool, toUIMessageStream, type ToolSet } from "ai"
import { Effect, Layer, Redacted, Stream } from "effect"
import type { AnswerPart } from "../../domain/chat/Chat.ts"
import { type Answer, LanguageModel, type ModelRequest, type ModelTool } from "../../domain/chat/LanguageModel.ts"

/** An OpenAI-compatible server, and how long it is waited for. */
export interface LanguageModelOptions {
  /** `https://api.openai.com/v1` */
  readonly baseUrl: string
  readonly model: string
  readonly apiKey: Redacted.Redacted<string> | undefined
  /** How many milliseconds the model may be silent; default: a minute. */
  readonly silence?: number
  /** How many milliseconds an answer may take, calls of tools included; default: five minutes. */
  readonly total?: number
  /** How many times a call that the server refused for the moment (429, 5xx) is made again; default: once. */
  readonly retries?: number
}

const failed = "The language model failed; try again."
const late = "The language model did not answer in time; try again."

const asTool = ({ description, parameter, run }: ModelTool) =>
  tool({
    description,
    inputSchema: jsonSchema<Record<string, string>>(
      {
        type: "object",
        properties: { [parameter.name]: { type: "string", description: parameter.description } },
        required: [parameter.name],
        additionalProperties: false,
      },
      {
        validate: (value) => {
          const given = (value as Record<string, unknown> | null)?.[parameter.name]
          return typeof given === "string"
            ? { success: true, value: { [parameter.name]: given } }
            : { success: false, error: new Error(`${parameter.name} must be a string`) }
        },
      },
    ),
    execute: (input, { abortSignal }) =>
      Effect.runPromise(run(input[parameter.name]!), abortSignal && { signal: abortSignal }),
  })

/** What may be logged of a fault: never the conversation, and not the key, should the server repeat it. */
const describe = (fault: unknown, secret: string) => {
  const { name, message, statusCode } = fault as { name?: string; message?: string; statusCode?: number }
  const text = `${name ?? "Error"}${statusCode === undefined ? "" : ` (status ${statusCode})`}: ${message ?? ""}`
  return (secret === "" ? text : text.replaceAll(secret, "…")).slice(0, 500)
}

/** A model behind any OpenAI-compatible server (chat completions). */
export const layer = (options: LanguageModelOptions) =>
  Layer.sync(LanguageModel, () => {
    // The SDK prints its warnings to the console otherwise.
    Object.assign(globalThis, { AI_SDK_LOG_WARNINGS: false })
    const { baseUrl, silence = 60_000, total = 300_000, retries = 1 } = options
    const apiKey = options.apiKey === undefined ? "" : Redacted.value(options.apiKey)
    const provider = createOpenAICompatible({ name: "model", baseURL: baseUrl, ...(apiKey === "" ? {} : { apiKey }) })

    const start = (
      { instructions, turns, tools, steps }: ModelRequest,
      abort: AbortController,
      faults: Array<unknown>,
    ) => {
      const toolSet: ToolSet = Object.fromEntries(tools.map((each) => [each.name, asTool(each)]))
      const { stream } = streamText({
        model: provider.chatModel(options.model),
        instructions,
        messages: turns.map(({ role, text }) => ({ role, content: text })),
        ...(tools.length === 0 ? {} : { tools: toolSet }),
        stopWhen: isStepCount(steps),
        // The last step answers: one that asks for a tool again would end the chat without a word.
        prepareStep: ({ stepNumber }) => (stepNumber === steps - 1 ? { toolChoice: "none" as const } : {}),
        maxRetries: retries,
        timeout: { totalMs: total },
        abortSignal: abort.signal,
        onError: ({ error }) => void faults.push(error),
      })
      return toUIMessageStream({
        stream,
        tools: toolSet,
        sendReasoning: true,
        sendSources: false,
        onError: () => failed,
      })
    }

    const answer: Answer = (request) =>
      Stream.unwrap(
        Effect.gen(function* () {
          const faults: Array<unknown> = []
          const abort = yield* Effect.acquireRelease(
            Effect.sync(() => new AbortController()),
            (abort) => Effect.sync(() => abort.abort()),
          )
          const logFaults = Effect.suspend(() =>
            Effect.forEach(faults.splice(0), (fault) =>
              Effect.logWarning("The language model failed", describe(fault, apiKey)),
            ),
          )
          return Stream.fromReadableStream({
            evaluate: () => start(request, abort, faults) as ReadableStream<AnswerPart>,
            onError: (fault) => fault,
          }).pipe(
            // A connection that breaks in the middle.
            Stream.catch((fault) => {
              faults.push(fault)
              return Stream.succeed<AnswerPart>({ type: "error", errorText: failed })
            }),
            // Thinking is no silence, so it is passed over only after this. The SDK's own limits begin with the answer.
            Stream.timeoutOrElse({
              duration: silence,
              orElse: () => {
                faults.push(new Error("silent for too long"))
                return Stream.succeed<AnswerPart>({ type: "error", errorText: late })
              },
            }),
            Stream.filter(({ type }) => !type.startsWith("reasoning")),
            // The client is not the one who ended it here: what is left is the time.
            Stream.map((part): AnswerPart => (part.type === "abort" ? { type: "error", errorText: late } : part)),
            Stream.tap(({ type }) => (type === "error" ? logFaults : Effect.void)),
            Stream.ensuring(logFaults),
          )
        }),
      )

    return LanguageModel.of({ answer })
  })
