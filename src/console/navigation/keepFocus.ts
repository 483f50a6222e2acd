/** What the focus goes to, the nearest first, when what had it is gone. */
const homes = ".page-head, .card, .panel, .beside, .dialog-body, main"

/** Keeps the focus where the reader is, when a button is gone after it was pressed: at the nearest part of the page. */
export const keepFocus = () => {
  let path: ReadonlyArray<EventTarget> = []
  document.addEventListener("focusin", (event) => {
    path = event.composedPath()
  })
  const observer = new MutationObserver(() => {
    const elements = path.filter((one) => one instanceof HTMLElement)
    if (elements[0]?.isConnected !== false || document.activeElement !== document.body || !document.hasFocus()) return
    const home = elements.find((one) => one.isConnected && one.matches(homes))
    if (home === undefined) return
    home.tabIndex = -1
    home.focus({ preventScroll: true })
  })
  observer.observe(document.body, { childList: true, subtree: true })
}
