import { contrastWithWhite, minContrast } from "../../domain/sessions/contrast.ts"
import { words } from "./words.ts"

/** What the page around the frame chooses: see docs/portal.md. */
export interface FrameSettings {
  readonly theme?: "system" | "light" | "dark"
  readonly color?: string
  readonly logo?: string
  readonly name?: string
  readonly lang?: string
  readonly page?: string
  readonly texts?: Readonly<Record<string, string>>
}

const maxUrl = 2_048
/** The largest picture in a URL, in characters. */
const maxPicture = 65_536
const maxName = 60
const maxText = 200
/** Texts that are read: none of the words is twice in them, so that more are mistakes. */
const maxTexts = 500

const isText = (value: unknown, most: number): value is string =>
  typeof value === "string" && value.trim() !== "" && value.length <= most && !/\p{Cc}/u.test(value)

const isLogo = (value: unknown) =>
  isText(value, maxPicture) &&
  (/^data:image\/(png|svg\+xml|jpeg|webp|gif)[;,]/.test(value) ||
    (value.length <= maxUrl && URL.canParse(value) && new URL(value).protocol === "https:"))

const isColor = (value: unknown) =>
  typeof value === "string" && /^#[0-9a-f]{6}$/i.test(value) && contrastWithWhite(value) >= minContrast

const isLang = (value: unknown) => isText(value, 35) && /^[a-z]{2,3}(-[a-z0-9]{2,8})*$/i.test(value)

/** Whether a value is right, and what it must be if it is not. */
const rules: Readonly<Record<Exclude<keyof FrameSettings, "texts">, readonly [(value: unknown) => boolean, string]>> = {
  theme: [(value) => ["system", "light", "dark"].includes(value as string), "system, light or dark"],
  color: [isColor, `# and six hexadecimal digits, of a color with a contrast of ${minContrast} with white text`],
  logo: [isLogo, "an https URL of at most 2,048 characters, or a data:image URL of at most 65,536"],
  name: [(value) => isText(value, maxName), `a line of 1 to ${maxName} characters`],
  lang: [isLang, "the tag of a language, such as de or pt-BR"],
  page: [
    (value) => ["endpoints", "deliveries", "events", "keys"].includes(value as string),
    "endpoints, deliveries, events or keys",
  ],
}

const known: ReadonlySet<string> = new Set(words)

/** The texts that replace a word, and what is wrong with the others. */
const textsOf = (value: unknown, faults: Array<string>) => {
  const entries =
    typeof value === "object" && value !== null && !Array.isArray(value) ? Object.entries(value) : undefined
  if (entries === undefined || entries.length > maxTexts) {
    faults.push(`texts must be an object of at most ${maxTexts} words and their texts.`)
    return {}
  }
  return Object.fromEntries(
    entries.filter(([word, text]) => {
      const isRight = known.has(word) && isText(text, maxText)
      const what = `texts: ${JSON.stringify(word.slice(0, maxName))}`
      if (!known.has(word)) faults.push(`${what} is no word of the portal: docs/portal.md lists them.`)
      else if (!isRight) faults.push(`${what} must have a text of 1 to ${maxText} characters.`)
      return isRight
    }),
  )
}

/** Faults that are told at once. */
const maxFaults = 10

/** The settings of a message that are right, and a sentence for each of the others. */
export const readSettings = (message: unknown): { settings: FrameSettings; faults: ReadonlyArray<string> } => {
  const faults: Array<string> = []
  const settings: Record<string, unknown> = {}
  const entries = typeof message === "object" && message !== null ? Object.entries(message) : []
  for (const [name, value] of entries) {
    if (value === undefined || value === null) continue
    if (name === "texts") settings["texts"] = textsOf(value, faults)
    else if (!Object.hasOwn(rules, name))
      faults.push(`The portal has no setting ${JSON.stringify(name.slice(0, maxName))}.`)
    else {
      const [isRight, expected] = rules[name as keyof typeof rules]
      if (isRight(value)) settings[name] = value
      else faults.push(`${name} must be ${expected}.`)
    }
  }
  return { settings, faults: faults.slice(0, maxFaults) }
}
