/** The text of a file: in UTF-8, or in UTF-16 when a byte order mark says so. */
export const textOf = (content: Uint8Array) => {
  const [first, second] = content
  const encoding =
    first === 0xff && second === 0xfe ? "utf-16le" : first === 0xfe && second === 0xff ? "utf-16be" : "utf-8"
  return new TextDecoder(encoding).decode(content)
}
