/**
 * Where a fault was thrown, for the log. Its message can contain words of a reader, a model or documentation, which no log may
 * have: a database shows the row that a constraint refuses.
 */
export const faultPlace = (fault: unknown): string => {
  const { name = "Error", stack = "" } = (fault ?? {}) as { readonly name?: string; readonly stack?: string }
  const frames = stack.split("\n").filter((line) => /^ {4}at /.test(line))
  return [name, ...frames.slice(0, 10)].join("\n").slice(0, 2_000)
}
