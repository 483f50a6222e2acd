import { render } from "preact"
import { App } from "./App.tsx"
import { startTheme } from "./navigation/Sidebar.tsx"

startTheme()
const root = document.getElementById("console")!
// The empty frame that was shown until now.
root.replaceChildren()
render(<App />, root)
