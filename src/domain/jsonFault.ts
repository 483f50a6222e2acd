/** Says that a text is not valid JSON, and where. The rest of the parser's error repeats the text. */
export const jsonFault = (error: unknown) => {
  const [, line, column] = /\(line (\d+) column (\d+)\)$/.exec(String(error)) ?? []
  // An unexpected word has no place.
  return `not valid JSON${line === undefined ? "" : `: see line ${line}, column ${column}`}`
}
