const portal = document.querySelector("gatehouse-portal")
const status = document.querySelector("[role=status]")

// At the beginning, and whenever a session of the portal has ended.
portal.addEventListener("gatehouse-token", async () => {
  // oxlint-disable-next-line no-restricted-globals -- a page has no Effect
  const response = await fetch("/portal-token", { method: "POST", headers: { "content-type": "application/json" } })
  if (response.ok) portal.token = (await response.json()).token
  else status.textContent = await response.text()
})
portal.addEventListener("gatehouse-fault", ({ detail }) => {
  status.textContent = detail.message
})

document.querySelector("#theme").addEventListener("click", ({ target }) => {
  const theme = portal.getAttribute("theme") === "dark" ? "light" : "dark"
  document.documentElement.dataset.theme = theme
  portal.setAttribute("theme", theme)
  target.textContent = theme === "dark" ? "Light" : "Dark"
})

const german = {
  Endpoints: "Endpunkte",
  Deliveries: "Zustellungen",
  Events: "Ereignisse",
  "API keys": "API-Schlüssel",
  "Add endpoint": "Endpunkt hinzufügen",
  "Create key": "Schlüssel erstellen",
}
document.querySelector("#language").addEventListener("click", ({ target }) => {
  const isGerman = portal.getAttribute("lang") === "de"
  portal.setAttribute("lang", isGerman ? "en" : "de")
  portal.texts = isGerman ? {} : german
  target.textContent = isGerman ? "Deutsch" : "English"
})
