import { render } from "preact"
import { App } from "./App.tsx"
import { isInFrame } from "./client/embedded.ts"
import { keepFocus } from "./navigation/keepFocus.ts"
import { startTheme } from "./navigation/Sidebar.tsx"

// In a frame, the page around it chooses.
if (!isInFrame) startTheme()
const root = document.getElementById("console")!
// The empty frame that was shown until now.
root.replaceChildren()
keepFocus()
render(<App />, root)
