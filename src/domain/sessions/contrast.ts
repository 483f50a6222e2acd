/** The contrast between white and a color that people can read. Source: WCAG 2.2, success criterion 1.4.3. */
export const minContrast = 4.5

/** The contrast of a color with white, 1 to 21. Source: WCAG 2.2, relative luminance. */
export const contrastWithWhite = (hex: string) => {
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const part = Number.parseInt(hex.slice(at, at + 2), 16) / 255
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4
  }) as [number, number, number]
  return 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)
}
