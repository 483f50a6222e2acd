/** Reads a JSON text that a person types; the error is for the field. */
export const parseJson = (text: string): { readonly value?: unknown; readonly error?: string } => {
  try {
    return { value: JSON.parse(text) as unknown }
  } catch {
    return { error: "This is no JSON. Texts need double quotes; no comma follows the last item." }
  }
}
