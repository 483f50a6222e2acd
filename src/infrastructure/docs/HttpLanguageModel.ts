import { createOpenAICompatible } from "@ai-sdk/openai-compatible"
import {
  isStepCount,
  jsonSchema,
  streamText,
  tool,
  ToolChoiceViolationError,
  type ToolSet,
  toUIMessageStream,
} from "ai"
import { Effect, Layer, Redacted, Stream } from "effect"
import type { AnswerPart } from "../../domain/docs/Chat.ts"
import { type Answer, LanguageModel, type ModelRequest, type ModelTool } from "../../domain/docs/LanguageModel.ts"

/** An OpenAI-compatible server, and the limits of its answers. */
export interface LanguageModelOptions {
  /** `https://api.openai.com/v1` */
  readonly baseUrl: string
  readonly model: string
  readonly apiKey: Redacted.Redacted<string> | undefined
  /** Limit of the time in which the model sends nothing. Default: one minute. */
  readonly maxSilenceMillis?: number
  /** Deadline of an answer, tool calls included. Default: five minutes. */
  readonly totalMillis?: number
  /** Retries of a call that fails with 429 or 5xx. Default: 1. */
  readonly retries?: number
}

const failed = { type: "error", errorText: "The language model failed; try again." } as const
/** A model that calls a tool on the last step, although it may not. Its answer ends there. */
const outOfSteps = "out of steps"
const tooLate = { type: "error", errorText: "The language model did not answer in time; try again." } as const

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

const codeOf = (fault: unknown): string | undefined => {
  const { code, cause } = fault as { code?: unknown; cause?: unknown }
  return typeof code === "string" ? code : typeof cause === "object" && cause !== null ? codeOf(cause) : undefined
}

/**
 * The loggable part of a fault: its kind, the status of the response, and the system's error code. Never its message,
 * which can contain words of the conversation or of the model.
 */
const faultText = (fault: unknown) => {
  const { name = "Error", statusCode } = fault as { name?: string; statusCode?: number }
  const code = codeOf(fault)
  const details = [
    ...(statusCode === undefined ? [] : [`status ${statusCode}`]),
    ...(code !== undefined && /^[A-Z0-9_]{1,60}$/.test(code) ? [code] : []),
  ]
  return details.length === 0 ? name : `${name} (${details.join(", ")})`
}

type Provider = ReturnType<typeof createOpenAICompatible>

/** Starts an answer of the SDK. Faults are added to `faults`. */
const startAnswer = (
  provider: Provider,
  { model, retries = 1, totalMillis = 300_000 }: LanguageModelOptions,
  { instructions, turns, tools, steps }: ModelRequest,
  abort: AbortController,
  faults: Array<unknown>,
) => {
  const toolSet: ToolSet = Object.fromEntries(tools.map((each) => [each.name, asTool(each)]))
  const { stream } = streamText({
    model: provider.chatModel(model),
    instructions,
    messages: turns.map(({ role, text }) => ({ role, content: text })),
    ...(tools.length === 0 ? {} : { tools: toolSet }),
    stopWhen: isStepCount(steps),
    // The last step must answer: another tool call would end the chat without text.
    prepareStep: ({ stepNumber }) => (stepNumber === steps - 1 ? { toolChoice: "none" as const } : {}),
    maxRetries: retries,
    timeout: { totalMs: totalMillis },
    abortSignal: abort.signal,
    onError: ({ error }) => void (ToolChoiceViolationError.isInstance(error) || faults.push(error)),
  })
  return toUIMessageStream({
    stream,
    tools: toolSet,
    sendReasoning: true,
    sendSources: false,
    onError: (error) => (ToolChoiceViolationError.isInstance(error) ? outOfSteps : failed.errorText),
  }) as ReadableStream<AnswerPart>
}

/** A model behind any OpenAI-compatible server (chat completions). */
export const layer = (options: LanguageModelOptions) =>
  Layer.sync(LanguageModel, () => {
    // Otherwise the SDK prints warnings to the console.
    Object.assign(globalThis, { AI_SDK_LOG_WARNINGS: false })
    const apiKey = options.apiKey === undefined ? "" : Redacted.value(options.apiKey)
    const provider = createOpenAICompatible({
      name: "model",
      baseURL: options.baseUrl,
      ...(apiKey === "" ? {} : { apiKey }),
    })

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
              Effect.logWarning("The language model failed", faultText(fault)),
            ),
          )
          return Stream.fromReadableStream({
            evaluate: () => startAnswer(provider, options, request, abort, faults),
            onError: (fault) => fault,
          }).pipe(
            // The connection broke during the answer.
            Stream.catch((fault) => {
              faults.push(fault)
              return Stream.succeed(failed)
            }),
            // Before reasoning is dropped, because reasoning is not silence. The SDK's own limits start with the
            // answer.
            Stream.timeoutOrElse({
              duration: options.maxSilenceMillis ?? 60_000,
              orElse: () => {
                faults.push({ name: "SilentForTooLong" })
                return Stream.succeed(tooLate)
              },
            }),
            Stream.filter(({ type, errorText }) => !type.startsWith("reasoning") && errorText !== outOfSteps),
            // Here only the deadline aborts: if the client leaves, the stream is interrupted.
            Stream.map((part): AnswerPart => (part.type === "abort" ? tooLate : part)),
            Stream.tap(({ type }) => (type === "error" ? logFaults : Effect.void)),
            Stream.ensuring(logFaults),
          )
        }),
      )

    return LanguageModel.of({ answer })
  })
