import type { OpenApi } from "effect/http-api"
import { securitySchemes } from "./security.ts"

type Operation = OpenApi.OpenAPISpecOperation

const errorBody = {
  type: "object",
  required: ["error", "code"],
  properties: {
    error: { type: "string", description: "A sentence for a person." },
    code: { type: "string", description: "A word for a program." },
  },
} as const

const describeOperation = (operation: Operation): Operation => {
  const access = (operation as { "x-gatehouse-access"?: string })["x-gatehouse-access"]
  const { "x-gatehouse-access": _, ...rest } = operation as Operation & { "x-gatehouse-access"?: string }
  return {
    ...rest,
    ...(access === undefined
      ? {}
      : { description: [operation.description, `**Access.** ${access}`].filter(Boolean).join("\n\n") }),
    responses: {
      ...operation.responses,
      default: { description: "Any other error.", content: { "application/json": { schema: errorBody } } },
    },
  } as Operation
}

/** Adds what the definition cannot say: security schemes, who may call in words, and the default response. */
export const describeApi = (spec: Record<string, unknown>): Record<string, unknown> => {
  const api = spec as unknown as OpenApi.OpenAPISpec
  const paths = Object.fromEntries(
    Object.entries(api.paths).map(([path, operations]) => [
      path,
      Object.fromEntries(
        Object.entries(operations).map(([method, operation]) => [method, describeOperation(operation as Operation)]),
      ),
    ]),
  )
  return { ...spec, paths, components: { ...api.components, securitySchemes } }
}
