import { render } from "preact"
import { App } from "./App.tsx"
import { startTheme } from "./navigation/theme.ts"

startTheme()
render(<App />, document.getElementById("console")!)
