const key = "theme"

/** The looks that a reader can choose; system: as their device is set. */
export const themes = [
  { value: "system", label: "System" },
  { value: "light", label: "Light" },
  { value: "dark", label: "Dark" },
] as const
export type Theme = (typeof themes)[number]["value"]

const read = () => {
  try {
    return localStorage.getItem(key)
  } catch {
    // A browser that stores nothing: the choice holds until the console is left.
    return document.documentElement.dataset["theme"]
  }
}

export const currentTheme = (): Theme => themes.find(({ value }) => value === read())?.value ?? "system"

const show = (theme: Theme) => void (document.documentElement.dataset["theme"] = theme)

/** Shows a theme, and keeps it in this browser. */
export const chooseTheme = (theme: Theme) => {
  show(theme)
  try {
    if (theme === "system") localStorage.removeItem(key)
    else localStorage.setItem(key, theme)
  } catch {
    // As above.
  }
}

/** Shows what was chosen before, also when another tab chooses. */
export const startTheme = () => {
  show(currentTheme())
  addEventListener("storage", () => show(currentTheme()))
}
